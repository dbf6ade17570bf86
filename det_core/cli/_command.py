"""Commands as tables: what each parser accepts, and which function runs it."""

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
    """The command line is wrong."""


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` instead of leaving the program, so that ``--json`` covers it too."""

    def error(self, message: str) -> NoReturn:
        complain(self, message)


@dataclass(frozen=True)
class Argument:
    """What ``add_argument`` takes; make it with `argument`."""

    flags: tuple[str, ...]
    options: dict[str, Any]


@dataclass(frozen=True)
class Command:
    """One command of a group, such as ``list`` of ``det experiment list``."""

    name: str
    run: Callable[[argparse.Namespace], int] | None
    """Does the work and returns the exit code; None for a group."""
    help: str
    arguments: Sequence[Argument] = ()
    aliases: Sequence[str] = ()
    commands: Sequence[Command] = ()
    """What a group consists of."""


def argument(*flags: str, **options: Any) -> Argument:
    """Takes what `argparse.ArgumentParser.add_argument` takes."""
    return Argument(flags, options)


def add_commands(parser: argparse.ArgumentParser, commands: Sequence[Command]) -> None:
    """Make the parser a group of commands."""
    parser.set_defaults(run=lambda _: ask_for_command(parser))
    group = parser.add_subparsers(title="commands", metavar="COMMAND", dest=f"{parser.prog} command")
    for command in commands:
        child = group.add_parser(command.name, aliases=command.aliases, help=command.help, description=command.help)
        add_arguments(child, command.arguments)
        if command.commands:
            add_commands(child, command.commands)
        else:
            child.set_defaults(run=command.run)


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[Argument]) -> None:
    """Add each argument of a table."""
    for one in arguments:
        parser.add_argument(*one.flags, **one.options)


def complain(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Refuse the command line, with the usage that was expected."""
    raise UsageError(f"{message}\n{parser.format_usage().rstrip()}\nMore: {parser.prog} --help")


def ask_for_command(parser: argparse.ArgumentParser) -> NoReturn:
    """Refuse a group's name alone, with the list of its commands."""
    raise UsageError(f"no command given\n\n{parser.format_help().rstrip()}")


def how_many(text: str) -> int:
    """A number from the command line that may not be negative."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return int(text)


JSON = argument("--json", action="store_true", help="print one JSON document")
CSV = argument("--csv", action="store_true", help="print comma-separated values, a line of names first")
LIMIT = argument("--limit", type=how_many, metavar="N", help="at most so many")
REVERSE = argument("--reverse", "-r", action="store_true", help="the other way round")
YES = argument("-y", "--yes", action="store_true", help="do not ask")
CHANGES = argument(
    "--config",
    action="append",
    default=[],
    dest="changes",
    metavar="KEY=VALUE",
    help="set a key of the config, such as launcher.slots=2; may be repeated",
)
FOLLOW = argument("-f", "--follow", action="store_true", help="watch it; Ctrl-C stops watching, not training")
EXPERIMENT_ID = argument("experiment_id", type=int, metavar="EXPERIMENT_ID")
TRIAL_ID = argument("trial_id", type=int, metavar="TRIAL_ID")
