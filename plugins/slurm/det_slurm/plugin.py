"""Registration of the launcher ``slurm`` and the command ``det slurm`` with det."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import CommandSpec, LauncherSpec


@det_core.hookimpl
def det_launchers() -> Iterator[LauncherSpec]:
    """Yield the specification of the launcher."""
    yield LauncherSpec(
        name="slurm",
        target="det_slurm._launcher:SlurmLauncher",
        config_model="det_slurm._config:SlurmConfig",
        install="pip install det-slurm",
    )


@det_core.hookimpl
def det_commands() -> Iterator[CommandSpec]:
    """Yield the specification of the command."""
    yield CommandSpec(name="slurm", target="det_slurm._submit_command:configure", help="run experiments as Slurm jobs")
