"""The ``det`` program.

The exit code is 0 for success, 1 for a failure, 2 for wrong usage or a wrong config, 129 after SIGHUP, 130 after
Ctrl-C, 141 after a broken pipe and 143 after SIGTERM.
"""

from __future__ import annotations

import sys

from det_core.version import __version__


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: arguments after the program's name, or None for those of this process.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["--version"]:  # needs no imports, because shells and scripts ask for it often
        print(f"det {__version__}")
        return 0
    from det_core.cli._program import run_program

    return run_program(arguments)
