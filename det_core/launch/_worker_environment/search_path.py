"""Search path of programs, for the commands of agents and workers."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def make_search_path() -> str:
    """Return ``PATH`` with this interpreter's directory first, so that ``python3`` has the packages that det has."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
