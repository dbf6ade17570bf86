"""Installation of a plugin module of the tests, without pip."""

from __future__ import annotations

import os
from pathlib import Path

from det_core.testing._plugin_metadata import write_plugin_metadata


def plugin_environment(site: Path, module: str) -> dict[str, str]:
    """Return the environment of a process in which a distribution in ``site`` registers this module."""
    write_plugin_metadata(site, "det-broken", module)
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
