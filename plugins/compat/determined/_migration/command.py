"""Command ``det migrate``."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path

from det_core.errors import DetError
from determined._migration.code_check import check_code
from determined._migration.config_check import check_config, check_requirements, check_startup_hook
from determined._migration.findings import Finding

_CHECKS = (
    ("startup-hook.sh", check_startup_hook),
    ("requirements*.txt", check_requirements),
    ("*.py", check_code),
    ("*.yaml", check_config),
    ("*.yml", check_config),
)
"""Pattern of file names -> check. The first that matches counts."""
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands to the parser."""
    parser.epilog = "example: det migrate check ."
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    check = commands.add_parser(
        "check",
        help="list what will not work in code that was written for determined",
        description="Read the Python files, configs and requirements of a directory, without running them, and list "
        "what will not work and what to do instead. The exit code is 1 if there are problems.",
        epilog="example: det migrate check .",
    )
    check.add_argument("directory", metavar="DIR", type=Path, help="the directory with the code")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.set_defaults(run=_check)


def check_directory(directory: Path) -> Iterator[Finding]:
    """Yield the findings about all files of a directory, by path.

    Args:
        directory: the directory.

    Raises:
        DetError: there is no such directory.
    """
    if not directory.is_dir():
        raise DetError(f"there is no directory {str(directory)!r}; pass the directory with the code")
    for parent, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            check = next((check for pattern, check in _CHECKS if path.match(pattern)), None)
            if check:
                file = path.relative_to(directory).as_posix()
                try:
                    text = path.read_text(encoding="utf-8")
                except (OSError, UnicodeError) as error:
                    yield Finding(file, None, "file", f"the file cannot be read: {error}")
                else:
                    yield from sorted(check(text, file), key=lambda finding: finding.line or 0)


def _check(args: argparse.Namespace) -> int:
    findings = list(check_directory(args.directory))
    problems = sum(finding.is_problem for finding in findings)
    if args.json:
        report = {"ok": not problems, "findings": [finding._asdict() for finding in findings]}
        print(json.dumps(report, indent=2))  # noqa: T201
    else:
        for finding in findings:
            print(finding)  # noqa: T201
        print(f"{problems} problem{'s' * (problems != 1)}, {_notes(len(findings) - problems)}")  # noqa: T201
    return 1 if problems else 0


def _notes(number: int) -> str:
    return f"{number} note{'s' * (number != 1)}"
