"""The command lines that started the workers of old entrypoints."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from det_core.launch.by_hand import start

_PYTHON = re.compile(r"(.*/)?python[\d.]*")


def run(backend: str, argv: Sequence[str]) -> int:
    """Start the workers of this node, and wait for them.

    Args:
        backend: what starts them.
        argv: options of its launcher before a ``--``, then ``--trial MODULE:CLASS``, or a program with its arguments.

    Returns:
        The exit code for this process.
    """
    parser = argparse.ArgumentParser(
        f"python3 -m determined.launch.{backend}",
        usage="%(prog)s [--] (--trial MODULE:CLASS | SCRIPT [ARGUMENT...])",
        description="Start the workers of this node, as many as the trial has slots here.",
    )
    parser.add_argument("--trial", metavar="MODULE:CLASS", help="the trial class that they train")
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT", help="the program that they run")
    if backend == "horovod":
        parser.add_argument("--autohorovod", action="store_true", help="no effect: one slot needs no other command")
    overrides, rest = _split(list(argv))
    if overrides:
        parser.error(
            f"{' '.join(overrides)}: det starts the launcher of {backend} by itself; leave out what comes before --, "
            f"or use: python3 -m det_core.launch {backend} --option KEY=VALUE -- …"
        )
    args = parser.parse_args(rest)
    if bool(args.trial) == bool(args.script):
        parser.error("expected --trial MODULE:CLASS, or a program with its arguments, such as python3 train.py")
    return start(backend, _worker(args.trial, args.script))


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """What comes before a ``--``, and after it. One among the arguments of a program is the program's."""
    if "--" not in argv or not argv[0].startswith("-"):
        return [], argv
    end = argv.index("--")
    return ([], argv) if "--trial" in argv[:end] else (argv[:end], argv[end + 1 :])


def _worker(trial: str | None, script: list[str]) -> list[str]:
    if trial:
        return [sys.executable, "-m", "det_core.launch.worker", trial]
    return [sys.executable, *script[1:]] if _PYTHON.fullmatch(script[0]) else script
