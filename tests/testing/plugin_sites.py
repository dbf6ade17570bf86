"""Installation of a plugin module of the tests, without pip."""

from __future__ import annotations

import os
from pathlib import Path


def plugin_environment(site: Path, module: str) -> dict[str, str]:
    """Return the environment of a process in which a distribution in ``site`` registers this module."""
    info = site / "det_broken-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: det-broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[det]\nbroken = {module}\n")
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
