"""Command ``det config``, which checks configs and prints their JSON schema."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from det_core.cli._command_table import CHANGES, JSON, Command, add_commands, make_argument
from det_core.config import config_schema, load_config
from det_core.errors import ConfigError, Problem


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands to the parser."""
    file = make_argument("file", metavar="FILE", help="the experiment config, in YAML")
    directory = make_argument(
        "directory", type=Path, nargs="?", metavar="DIR", help="directory with your code; default: that of FILE"
    )
    commands = [
        Command(
            "check",
            _check,
            "check a config and its code, and report problems with their lines",
            [file, directory, CHANGES, JSON],
            example="const.yaml --config launcher.slots=2",
        ),
        Command(
            "schema",
            _schema,
            "print the JSON schema, including the options of installed plugins",
            example="> schema.json",
        ),
    ]
    add_commands(parser, commands)


def _check(args: argparse.Namespace) -> int:
    from det_core.runner import check_code

    problems: Sequence[Problem] = ()
    notices: Sequence[str] = ()
    try:
        config = load_config(args.file, args.changes, import_targets=True)
        directory = args.directory or Path(args.file).parent
        if args.directory or any(directory.glob("*.py")):
            notices = [*config.notices, *check_code(config, directory)]
        else:
            notices = [*config.notices, f"{directory} has no code to check; to check it, add its directory as DIR"]
    except ConfigError as error:
        problems = error.problems
    if args.json:
        report = {"ok": not problems, "problems": [asdict(problem) for problem in problems], "notices": notices}
        print(json.dumps(report, indent=2))
    elif problems:
        print(*problems, sep="\n", file=sys.stderr)
    else:
        print(f"{args.file}: ok", *notices, sep="\n")
    return 2 if problems else 0


def _schema(args: argparse.Namespace) -> int:
    print(json.dumps(config_schema(), indent=2))
    return 0
