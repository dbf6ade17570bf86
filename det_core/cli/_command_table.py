"""Tables of commands, with the arguments that each accepts and the function that runs it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from det_core.errors import DetError

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
HUNG_UP = 129
"""Exit code after SIGHUP, which a closed terminal sends."""
TERMINATED = 143
"""Exit code after SIGTERM."""


class UsageError(DetError):
    """Error of a wrong command line."""


class Parser(argparse.ArgumentParser):
    """Argument parser that raises `UsageError` instead of exiting, so that ``--json`` covers these errors, too."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments, and refuse unknown ones with the usage of the command instead of that of ``det``."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        raise_usage_error(self, message)


@dataclass(frozen=True)
class Argument:
    """Arguments of one call of ``add_argument``. To create one, call `make_argument`."""

    flags: tuple[str, ...]
    options: dict[str, Any]


@dataclass(frozen=True)
class Command:
    """One command of a group, such as ``list`` of ``det experiment list``."""

    name: str
    run: Callable[[argparse.Namespace], int] | None
    """Function that runs the command and returns the exit code, or None for a group."""
    help: str
    arguments: Sequence[Argument] = ()
    aliases: Sequence[str] = ()
    commands: Sequence[Command] = ()
    """Commands of a group."""
    epilog: str = ""
    """Lines at the end of the help, which usage errors show, too."""


def make_argument(*flags: str, **options: Any) -> Argument:
    """Return the arguments of one call of `argparse.ArgumentParser.add_argument`."""
    return Argument(flags, options)


def add_commands(parser: argparse.ArgumentParser, commands: Sequence[Command]) -> None:
    """Turn the parser into a group of commands."""
    parser.set_defaults(run=lambda _: refuse_missing_command(parser))
    group = parser.add_subparsers(title="commands", metavar="COMMAND", dest=f"{parser.prog} command")
    for command in commands:
        child = group.add_parser(
            command.name,
            aliases=command.aliases,
            help=command.help,
            description=command.help,
            epilog=command.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter if command.epilog else argparse.HelpFormatter,
        )
        add_arguments(child, command.arguments)
        if command.commands:
            add_commands(child, command.commands)
        else:
            child.set_defaults(run=command.run)


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[Argument]) -> None:
    """Add all arguments of a table to the parser."""
    for one in arguments:
        parser.add_argument(*one.flags, **one.options)


def raise_usage_error(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Reject the command line and show the expected usage.

    Raises:
        UsageError: always.
    """
    parts = (message, parser.format_usage().rstrip(), parser.epilog, f"For help: {parser.prog} --help")
    raise UsageError("\n".join(filter(None, parts)))


def refuse_missing_command(parser: argparse.ArgumentParser) -> NoReturn:
    """Reject the name of a group without a command, and list the commands of the group.

    Raises:
        UsageError: always.
    """
    raise UsageError(f"no command given\n\n{parser.format_help().rstrip()}")


def parse_count(text: str) -> int:
    """Parse a non-negative integer from the command line.

    Raises:
        argparse.ArgumentTypeError: the text is not a non-negative integer.
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a non-negative integer, got {text!r}")
    return int(text)


JSON = make_argument("--json", action="store_true", help="print one JSON document")
CSV = make_argument("--csv", action="store_true", help="print comma-separated values with a header line")
LIMIT = make_argument("--limit", type=parse_count, metavar="N", help="maximum number of rows")
REVERSE = make_argument("--reverse", "-r", action="store_true", help="reverse the sort order")
YES = make_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
CHANGES = make_argument(
    "--config",
    action="append",
    default=[],
    dest="changes",
    metavar="KEY=VALUE",
    help="set a key of the config, such as launcher.slots=2; may be repeated",
)
FOLLOW = make_argument(
    "-f", "--follow", action="store_true", help="watch the experiment; Ctrl-C stops watching, not training"
)
EXPERIMENT_ID = make_argument("experiment_id", type=int, metavar="EXPERIMENT_ID")
TRIAL_ID = make_argument("trial_id", type=int, metavar="TRIAL_ID")
