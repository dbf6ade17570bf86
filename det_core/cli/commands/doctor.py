"""Command ``det doctor``, which checks whether an experiment can run on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from det_core.cli._command_table import JSON, make_argument, set_up_command
from det_core.cli.render.formats import format_table, print_json
from det_core.errors import ConfigError

if TYPE_CHECKING:
    from det_core.cli.commands._doctor_checks import CheckResult

_ARGUMENTS = (
    make_argument(
        "config", type=Path, nargs="?", metavar="CONFIG", help="the config of an experiment that will run here"
    ),
    JSON,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    set_up_command(parser, _run, _ARGUMENTS, "const.yaml")


def _run(args: argparse.Namespace) -> int:
    findings = list(_findings(args.config))
    ok = all(finding.ok for finding in findings)
    if args.json:
        print_json({"ok": ok, "checks": findings})
    else:
        rows = ((one.check, "ok" if one.ok else "failed", one.detail) for one in findings)
        print(format_table(("check", "result", "detail"), rows))
    return 0 if ok else 1


def _findings(path: Path | None) -> Iterator[CheckResult]:
    from det_core.cli.commands._doctor_checks import CheckResult, run_checks
    from det_core.config import load_config

    config = None
    if path is not None:
        try:
            config = load_config(path)
        except ConfigError as error:
            yield CheckResult(check="config", ok=False, detail="; ".join(str(error).splitlines()))
        else:
            yield CheckResult(check="config", ok=True, detail=str(path))
    yield from run_checks(config)
