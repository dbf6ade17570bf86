"""Command ``det doctor``, which checks whether an experiment can run on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from det_core.cli._command_table import JSON, UsageError, make_argument, set_up_command
from det_core.cli.render.printing import print_json
from det_core.errors import ConfigError
from det_core.text import format_table

if TYPE_CHECKING:
    from det_core.cli.commands._doctor_checks import CheckResult

_ARGUMENTS = (
    make_argument(
        "config", type=Path, nargs="?", metavar="CONFIG", help="the config of an experiment that will run here"
    ),
    make_argument(
        "--config",
        action="append",
        default=[],
        dest="given",
        metavar="CONFIG|KEY=VALUE",
        help="the same config, or a key of it to set, such as launcher.slots=2; may be repeated",
    ),
    JSON,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    set_up_command(parser, _run, _ARGUMENTS, "const.yaml --config launcher.slots=2")


def _run(args: argparse.Namespace) -> int:
    changes = [one for one in args.given if "=" in one and not Path(one).is_file()]
    paths = [*filter(None, [args.config]), *(Path(one) for one in args.given if one not in changes)]
    if len(paths) > 1 or (changes and not paths):
        raise UsageError(f"expected one config, got {', '.join(map(str, paths)) or 'none'}")
    findings = list(_findings(paths[0] if paths else None, changes))
    ok = all(finding.ok for finding in findings)
    if args.json:
        print_json({"ok": ok, "checks": findings})
    else:
        rows = ((one.check, "ok" if one.ok else "failed", one.detail) for one in findings)
        print(format_table(("check", "result", "detail"), rows))
    return 0 if ok else 1


def _findings(path: Path | None, changes: Sequence[str]) -> Iterator[CheckResult]:
    from det_core.cli.commands._doctor_checks import CheckResult, run_checks
    from det_core.config import load_config

    config = None
    if path is not None:
        try:
            config = load_config(path, changes)
        except ConfigError as error:
            yield CheckResult(check="config", ok=False, detail="; ".join(str(error).splitlines()))
        else:
            yield CheckResult(check="config", ok=True, detail=str(path))
    yield from run_checks(config)
