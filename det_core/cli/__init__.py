"""The ``det`` program. Exit codes: 0 done, 1 failed, 2 wrong usage or config, 130 Ctrl-C, 143 SIGTERM."""

from __future__ import annotations

import sys

from det_core import __version__


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: the arguments after the program's name; None = those of this process.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["--version"]:  # answered before anything is imported: shells and scripts ask often
        print(f"det {__version__}")
        return 0
    from det_core.cli._program import run

    return run(arguments)
