"""Tables of commands, with the arguments that each accepts and the function that runs it."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from det_core.errors import DetError
from det_core.similar_names import suggest_name

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
HUNG_UP = 129
"""Exit code after SIGHUP, which a closed terminal sends."""
TERMINATED = 143
"""Exit code after SIGTERM."""
_MOST_DIGITS = 18
"""Length of the longest numbers that all fit into 64 bits."""


class UsageError(DetError):
    """Error of a wrong command line."""


class HelpFormatter(argparse.HelpFormatter):
    """Formatter that keeps the lines of an epilog, and wraps long ones below the second column of a table."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        def wrap(line: str) -> str:
            first = re.match(r" *\S+  +", line)
            return textwrap.fill(line, width, subsequent_indent=" " * (first.end() if first else 0))

        return "\n".join(map(wrap, text.splitlines()))


class Parser(argparse.ArgumentParser):
    """Argument parser that raises `UsageError` instead of exiting, so that ``--json`` covers these errors, too."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": HelpFormatter, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments, and refuse unknown ones with the usage of the command instead of that of ``det``."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = (one.partition("=")[0] for one in unknown if one.startswith("-"))
            hint = next(filter(None, (suggest_name(option, self._option_string_actions) for option in options)), "")
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = () if action.choices is None else action.choices
        if action.choices is not None and value not in choices:
            hint = suggest_name(str(value), map(str, choices)) or f" (choose from {', '.join(map(str, choices))})"
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{hint}")

    def error(self, message: str) -> NoReturn:
        raise_usage_error(self, message)


@dataclass(frozen=True)
class Argument:
    """Arguments of one call of ``add_argument``. To create one, call `make_argument`."""

    flags: tuple[str, ...]
    options: dict[str, Any]
    group: str | None = None
    """Title of the arguments in the help, or None for the default ones."""


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
    example: str = ""
    """Arguments of an example, without the name of the command. Each line is one."""


def make_argument(*flags: str, group: str | None = None, **options: Any) -> Argument:
    """Return the arguments of one call of `argparse.ArgumentParser.add_argument`.

    Args:
        flags: the name of a positional argument, or those of an option.
        group: title under which the help lists the argument.
        options: the keyword arguments.
    """
    return Argument(flags, options, group)


def add_commands(parser: argparse.ArgumentParser, commands: Sequence[Command]) -> None:
    """Turn the parser into a group of commands, whose help shows the example of its first command."""
    parser.set_defaults(run=lambda _: refuse_missing_command(parser))
    group = parser.add_subparsers(title="commands", metavar="COMMAND", dest=f"{parser.prog} command")
    for command in commands:
        child = group.add_parser(
            command.name, aliases=command.aliases, help=command.help, description=command.help, epilog=command.epilog
        )
        if command.commands:
            add_arguments(child, command.arguments)
            add_commands(child, command.commands)
        elif command.run:
            set_up_command(child, command.run, command.arguments, command.example)
    first = commands[0].commands[0] if commands[0].commands else commands[0]
    names = f"{commands[0].name} {first.name}" if commands[0].commands else first.name
    _add_example(parser, [f"{names} {line}" for line in first.example.splitlines()])


def set_up_command(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    arguments: Sequence[Argument],
    example: str = "",
) -> None:
    """Give the parser its arguments, its function and its example.

    Args:
        parser: the parser of the command.
        run: function that runs the command and returns the exit code.
        arguments: the arguments that it accepts.
        example: arguments of an example. Each line is one.
    """
    add_arguments(parser, arguments)
    _add_example(parser, example.splitlines() or [""])

    def run_with_usage(args: argparse.Namespace) -> int:
        try:
            return run(args)
        except UsageError as error:
            raise_usage_error(parser, str(error))

    parser.set_defaults(run=run_with_usage)


def _add_example(parser: argparse.ArgumentParser, lines: Sequence[str]) -> None:
    title = "example" if len(lines) == 1 else "examples"
    example = "\n".join((f"{title}:", *(f"  {parser.prog} {line}".rstrip() for line in lines)))
    parser.epilog = "\n\n".join(filter(None, (parser.epilog, example)))


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[Argument]) -> None:
    """Add all arguments of a table to the parser. The arguments of each group have a title in the help."""
    groups: dict[str | None, argparse._ActionsContainer] = {None: parser}
    for one in arguments:
        if one.group not in groups:
            groups[one.group] = parser.add_argument_group(one.group)
        groups[one.group].add_argument(*one.flags, **one.options)


def raise_usage_error(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Reject the command line and show the expected usage.

    Raises:
        UsageError: always.
    """
    parts = (message, parser.format_usage().rstrip(), parser.epilog, f"for help: {parser.prog} --help")
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
        argparse.ArgumentTypeError: the text is not a non-negative integer below 10**18.
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a non-negative integer, got {text!r}")
    if len(text) > _MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"expected an integer of at most {_MOST_DIGITS} digits, got {text:.40}")
    return int(text)


OUTPUT = "output"
"""Title of the options that change what is printed."""


class OpenChoices(list[str]):
    """Values that the shell completes, for an option that also takes others."""

    def __contains__(self, value: object) -> bool:
        return True


FILTERS = "filters"
"""Title of the options that select what is shown."""
WHERE = make_argument(
    "--where",
    default="",
    metavar="FILTER",
    help="only rows for which this holds, such as 'lr < 0.01 and accuracy > 0.9'; docs/cli.md describes it",
    group=FILTERS,
)
JSON = make_argument("--json", action="store_true", help="print one JSON document", group=OUTPUT)
CSV = make_argument("--csv", action="store_true", help="print comma-separated values with a header line", group=OUTPUT)
LIMIT = make_argument("--limit", type=parse_count, metavar="N", help="maximum number of rows", group=OUTPUT)
REVERSE = make_argument("--reverse", "-r", action="store_true", help="reverse the sort order", group=OUTPUT)
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
EXPERIMENT_ID = make_argument(
    "experiment_id", type=int, metavar="EXPERIMENT_ID", help="id of an experiment, see det experiment list"
)
TRIAL_ID = make_argument(
    "trial_id", type=int, metavar="TRIAL_ID", help="id of a trial, see det trial list EXPERIMENT_ID"
)
