"""Program of a fork that stands for another Python process, ``python -m det_testing._fork_program ARGUMENT...``.

It does what ``python ARGUMENT...`` does, also if the plugins or the search path differ from those of the prepared
process.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from det_core.plugins import plugin_registry


def main(argv: list[str]) -> None:
    """Run a module or a script."""
    sys.orig_argv = [sys.executable, *argv]
    first, *rest = argv
    plugin_registry.cache_clear()
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(first).resolve().parent)
        sys.argv = argv
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
