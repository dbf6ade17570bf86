"""Dispatch of arguments to the commands that plugins offer, and of errors to exit codes."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NoReturn, cast

from det_core.cli._command_table import INTERRUPTED, TERMINATED, Parser, UsageError, refuse_missing_command
from det_core.cli.render.sanitized_streams import sanitize_streams
from det_core.errors import ConfigError, DetError, PluginError
from det_core.plugins import no_exit, plugin_registry
from det_core.specs import CommandSpec
from det_core.version import __version__

_BROKEN_PIPE = 141
_STREAMS = {"stdin": "r", "stdout": "w", "stderr": "w"}
"""Modes of the standard streams by name, in the order of their descriptors."""

_EXAMPLES = """\
examples:
  det init                               # write a config and a trial
  det run const.yaml                     # train it, and show the progress
  det experiment create const.yaml . -f  # the same in the background
  det experiment list                    # show all experiments"""

_MASTER = ("-m", "--master")
_ALIASES = {"experiment": ["e"], "trial": ["t"], "checkpoint": ["c"], "model": ["m"]}


class TerminationSignal(BaseException):
    """Exception for SIGTERM. It is not `SystemExit`, which a plugin may raise."""


def run_program(argv: Sequence[str]) -> int:
    """Run the command and return the exit code. Errors that a user can act on are reported in one message."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name of any bytes must not stop the command
    with sanitize_streams():
        return _run(argv)


def _run(argv: Sequence[str]) -> int:
    try:
        with _terminable():
            args = parser_for(argv).parse_args(argv)
            if args.det_master:
                _use_master(args.det_master)
            code: int = args.run(args)
            sys.stdout.flush()
            return code
    except (DetError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            _discard_stdout()
            return _BROKEN_PIPE
        return _report(error, as_json="--json" in argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    except TerminationSignal:
        return TERMINATED
    except SystemExit as stop:  # --help, and commands of plugins
        if isinstance(stop.code, int | None):
            return stop.code or 0
        return _report(DetError(stop.code), as_json="--json" in argv)


def _use_master(url: str) -> None:
    """Let the command use a tracking store or det server."""
    from det_core.tracking import is_server_url
    from det_core.tracking.access_tokens import TOKEN_VARIABLE, is_meant, remember_token

    if is_server_url(url):
        url = remember_token(url)
        if not is_meant(url) and os.environ.pop(TOKEN_VARIABLE, ""):
            print(
                f"{TOKEN_VARIABLE} is not used: it is for the server that DET_MASTER names, which is not {url}",
                file=sys.stderr,
            )
    os.environ["DET_MASTER"] = url


def parser_for(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser of all commands. Only the command that ``argv`` names is imported.

    Raises:
        UsageError: ``argv`` names an unknown command.
        PluginError: the command cannot be set up.
    """
    asked = next((word for before, word in pairwise(["", *argv]) if word[:1] != "-" and before not in _MASTER), None)
    parser, known = _build_parser(lambda names: asked in names)
    if asked is not None and asked not in known:
        _refuse(asked)
    return parser


def complete_parser() -> argparse.ArgumentParser:
    """Return a parser of all commands and their subcommands, such as for a reference of the command line.

    Raises:
        PluginError: a command cannot be set up.
    """
    return _build_parser(lambda names: True)[0]


def _build_parser(wanted: Callable[[Sequence[str]], bool]) -> tuple[argparse.ArgumentParser, Collection[str]]:
    """Return the parser of ``det``, and the names and aliases of the commands.

    Args:
        wanted: whether to import the command with these names.
    """
    parser = Parser(
        prog="det", description="Train models. Every framework, backend and store is a plugin.", epilog=_EXAMPLES
    )
    parser.add_argument("--version", action="version", version=f"det {__version__}")
    parser.add_argument(
        *_MASTER,
        dest="det_master",
        metavar="URL",
        help="tracking store or det server to use, such as https://host:8080; default: DET_MASTER, else det.db",
    )
    parser.set_defaults(run=lambda _: refuse_missing_command(parser))
    group = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    specs = {spec.name: cast(CommandSpec, spec) for spec in plugin_registry().specs("command")}
    for name, spec in specs.items():
        aliases = [alias for alias in _ALIASES.get(name, ()) if alias not in specs]
        child = group.add_parser(name, aliases=aliases, help=spec.help.replace("%", "%%"), description=spec.help)
        if wanted((name, *aliases)):
            _configure(spec, child)
    return parser, group.choices


def _configure(spec: CommandSpec, parser: argparse.ArgumentParser) -> None:
    configure = plugin_registry().load(spec)
    try:
        with no_exit():
            configure(parser)
    except Exception as error:
        raise PluginError(f"command {spec.name!r} ({spec.target}) failed to set up: {error!r}") from error


def _refuse(command: str) -> NoReturn:
    """Raise a UsageError for a command that no plugin or more than one plugin offers."""
    try:
        plugin_registry().find("command", command)
    except PluginError as error:
        raise UsageError(str(error)) from None
    raise AssertionError(command)


def _report(error: Exception, *, as_json: bool) -> int:
    if os.environ.get("DET_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    try:
        if as_json:
            print(json.dumps({"error": str(error)}))
        sys.stdout.flush()
    except OSError:  # such as a full disk, which may be the error itself
        as_json = False
        _discard_stdout()
    if not as_json:
        print(f"det: error: {error}", file=sys.stderr)
    return 2 if isinstance(error, (ConfigError, UsageError)) else 1


def _discard_stdout() -> None:
    """Redirect stdout to the null device, because Python would report another failed flush at the end, as code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that temporary files are removed."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: object) -> NoReturn:
    raise TerminationSignal


def _open_streams() -> None:
    """Open the null device in place of closed standard streams, as in ``det experiment list >&-``.

    Otherwise the database or a socket would get the free descriptor, and printed text would be written to it.
    """
    for name, mode in _STREAMS.items():
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode)  # noqa: SIM115  (open until the process ends)
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
