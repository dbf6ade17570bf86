"""Command line of the programs that old entrypoints run."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from det_core.launch.standalone import start_workers

_PYTHON = re.compile(r"(.*/)?python[\d.]*")


def run_launcher(backend: str, argv: Sequence[str]) -> int:
    """Start the workers of this node, and wait for them.

    Args:
        backend: the name of the backend that starts them.
        argv: ``--trial MODULE:CLASS``, or a program with its arguments, possibly after a ``--``. Options of the
            backend's launcher before the ``--`` are an error.

    Returns:
        The exit code for this process.
    """
    parser = argparse.ArgumentParser(
        f"python3 -m determined.launch.{backend}",
        usage="%(prog)s [--] (--trial MODULE:CLASS | SCRIPT [ARGUMENT...])",
        description="Start a worker for each slot of the trial on this node.",
    )
    parser.add_argument("--trial", metavar="MODULE:CLASS", help="the trial class to train")
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT", help="the program to run")
    if backend == "horovod":
        parser.add_argument("--autohorovod", action="store_true", help="ignored, as one slot works without it")
    overrides, rest = _split(list(argv))
    if overrides:
        parser.error(
            f"{' '.join(overrides)}: det starts the launcher of {backend} itself; remove everything before --, or use: "
            f"python3 -m det_core.launch {backend} --option KEY=VALUE -- …"
        )
    args = parser.parse_args(rest)
    if bool(args.trial) == bool(args.script):
        parser.error("expected --trial MODULE:CLASS, or a program with its arguments, such as python3 train.py")
    return start_workers(backend, _worker(args.trial, args.script))


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split arguments at ``--``, unless it belongs to the arguments of a program."""
    if "--" not in argv or not argv[0].startswith("-"):
        return [], argv
    end = argv.index("--")
    return ([], argv) if "--trial" in argv[:end] else (argv[:end], argv[end + 1 :])


def _worker(trial: str | None, script: list[str]) -> list[str]:
    if trial:
        return [sys.executable, "-m", "det_core.launch.worker", trial]
    return [sys.executable, *script[1:]] if _PYTHON.fullmatch(script[0]) else script
