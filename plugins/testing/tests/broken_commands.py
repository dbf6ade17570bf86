"""Commands with one defect each, and the tests of the suite that catch it.

test_command.py registers them as a plugin and runs the tests.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import unittest.mock  # noqa: F401  (adds more modules than the budget allows)
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import det_core
from det_core.errors import DetError
from det_core.specs import CommandSpec


class Sound:
    """Base class of all commands here, which lists a directory and has no defect but its module's imports."""

    help = "list 100% of a directory"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("path", type=Path, nargs="?", default=Path())
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        parser.add_argument("--watch", action="store_true", help="wait until Ctrl-C")
        parser.set_defaults(run=self.run)

    def run(self, args: argparse.Namespace) -> Any:
        if not args.path.is_dir():
            raise DetError(f"there is no directory {args.path}")
        names = [path.name for path in args.path.iterdir()]
        print(json.dumps(names) if args.json else names)
        if args.watch:
            time.sleep(60)
        return 0


class FormatsItsHelp(Sound):
    def configure(self, parser: argparse.ArgumentParser) -> None:
        super().configure(parser)
        parser.add_argument("--all", action="store_true", help="list 100% of it")


class HasNoHelp(Sound):
    help = ""


class HidesAnOption(Sound):
    def configure(self, parser: argparse.ArgumentParser) -> None:
        super().configure(parser)
        parser.add_argument("--hidden", help=argparse.SUPPRESS)


class ExplainsNoOption(Sound):
    def configure(self, parser: argparse.ArgumentParser) -> None:
        super().configure(parser)
        parser.add_argument("--size", action="store_true")


class ExplainsNoCommand(Sound):
    def configure(self, parser: argparse.ArgumentParser) -> None:
        super().configure(parser)
        parser.add_subparsers().add_parser("list")


class ForgetsItsFunction(Sound):
    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_subparsers().add_parser("list", help="list a directory")


class WritesForItsHelp(Sound):
    def configure(self, parser: argparse.ArgumentParser) -> None:
        super().configure(parser)
        Path("cache").touch()


class PrintsColours(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        print("\x1b[31mreading\x1b[0m")
        return super().run(args)


class AsksForConfirmation(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        return super().run(args) if input("really? ") else 1


class PrintsTwoDocuments(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        print(json.dumps(str(args.path)))
        return super().run(args)


class DumpsPaths(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        print(json.dumps(args.path) if args.json else args.path)
        return 0


class HasCodesOfItsOwn(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        if not args.path.is_dir():
            print(f"det: error: there is no directory {args.path}", file=sys.stderr)
            return 3
        return super().run(args)


class PrintsWhatItFinds(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        print(f"{args.path}:")
        return super().run(args)


class ReturnsItsResult(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        return super().run(args) or "done"


class TakesAnything(Sound):
    def configure(self, parser: argparse.ArgumentParser) -> None:
        super().configure(parser)
        parser.add_argument("rest", nargs=argparse.REMAINDER)


class PrintsTheUsageOnly(Sound):
    def configure(self, parser: argparse.ArgumentParser) -> None:
        super().configure(parser)
        parser.add_argument("rest", nargs=argparse.REMAINDER)
        parser.set_defaults(run=lambda args: print("wrong usage") or 2 if args.rest else self.run(args))


class RaisesABareError(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        if not args.path.is_dir():
            raise KeyError(args.path)
        return super().run(args)


class FailsWithSuccess(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        try:
            return super().run(args)
        except DetError as error:
            print(error, file=sys.stderr)
            return 0


class ExplainsAtLength(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        if not args.path.is_dir():
            raise DetError(f"there is no directory {args.path}\nplease choose another one")
        return super().run(args)


class GreetsFirst(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        print(f"reading {args.path}")
        return super().run(args)


class PrintsNan(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        print(json.dumps(float("nan")))
        return 0


class PrintsErrorsAsText(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        try:
            return super().run(args)
        except DetError as error:
            print(f"det: error: {error}", file=sys.stderr)
            return 1


class SwallowsCtrlC(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        try:
            return super().run(args)
        except KeyboardInterrupt:
            return 0


class ShowsCtrlC(Sound):
    def run(self, args: argparse.Namespace) -> Any:
        try:
            return super().run(args)
        except KeyboardInterrupt as error:
            raise RuntimeError("interrupted") from error


CAUGHT_BY: dict[type[Sound], list[str]] = {
    Sound: ["the_list_of_commands_is_quick"],
    FormatsItsHelp: ["help_describes_the_command"],
    HasNoHelp: ["help_describes_the_command"],
    HidesAnOption: ["help_describes_every_option"],
    ExplainsNoOption: ["help_describes_every_option"],
    ExplainsNoCommand: ["help_describes_every_option"],
    ForgetsItsFunction: ["every_command_has_a_function"],
    WritesForItsHelp: ["help_describes_the_command"],
    PrintsColours: ["a_success_exits_with_0"],
    AsksForConfirmation: ["a_success_exits_with_0"],
    PrintsTwoDocuments: ["json_is_one_document"],
    DumpsPaths: ["json_is_one_document"],
    HasCodesOfItsOwn: ["a_failure_is_one_line"],
    PrintsWhatItFinds: ["a_failure_is_one_line"],
    ReturnsItsResult: ["a_success_exits_with_0"],
    TakesAnything: ["a_wrong_option_is_a_usage_error"],
    PrintsTheUsageOnly: ["a_wrong_option_is_a_usage_error"],
    RaisesABareError: ["a_failure_is_one_line"],
    FailsWithSuccess: ["a_failure_is_one_line"],
    ExplainsAtLength: ["a_failure_is_one_line"],
    GreetsFirst: ["json_is_one_document", "a_failure_is_one_document"],
    PrintsNan: ["json_is_one_document"],
    PrintsErrorsAsText: ["a_failure_is_one_document"],
    SwallowsCtrlC: ["an_interrupted_run_ends_with_130"],
    ShowsCtrlC: ["an_interrupted_run_ends_with_130"],
}


def command_name(command: type[Sound]) -> str:
    """Return the name under which a command is registered."""
    return command.__name__.lower()


@det_core.hookimpl
def det_commands() -> Iterator[CommandSpec]:
    for command in CAUGHT_BY:
        yield CommandSpec(
            name=command_name(command), target=f"{__name__}:configure_{command.__name__}", help=command.help
        )


for _command in CAUGHT_BY:
    globals()[f"configure_{_command.__name__}"] = _command().configure
