"""Registration of the launcher ``ray`` and the command ``det ray`` with det."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import CommandSpec, LauncherSpec


@det_core.hookimpl
def det_launchers() -> Iterator[LauncherSpec]:
    """Yield the specification of the launcher."""
    yield LauncherSpec(
        name="ray",
        target="det_ray._launcher:RayLauncher",
        config_model="det_ray._config:RayConfig",
        install="pip install det-ray",
    )


@det_core.hookimpl
def det_commands() -> Iterator[CommandSpec]:
    """Yield the specification of the command."""
    yield CommandSpec(
        name="ray", target="det_ray._submit_command:configure", help="run experiments as jobs of a Ray cluster"
    )
