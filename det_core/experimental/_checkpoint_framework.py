"""Lookup of the framework that saved a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from det_core import storage
from det_core.errors import CheckpointNotFound, InvalidTrial
from det_core.package_commands import package_command
from det_core.plugins import plugin_registry
from det_core.specs import FrameworkSpec


def framework_at(path: Path) -> FrameworkSpec:
    """Return the framework that loads the checkpoint in a directory.

    Raises:
        CheckpointNotFound: there is no checkpoint.
        InvalidTrial: no installed framework loads it.
    """
    file = path / storage.METADATA_FILE
    if not file.is_file():
        raise CheckpointNotFound(
            f"{path} is not the directory of a checkpoint: it has no {file.name}; to get one: det checkpoint download "
            "UUID"
        )
    described = path / "load_data.json"
    trial_type = storage.read_object(described).get("trial_type") if described.is_file() else None
    return framework_of(path, storage.read_object(file), trial_type)


def framework_of(what: object, metadata: Mapping[str, Any], trial_type: object = None) -> FrameworkSpec:
    """Return the framework that loads checkpoints with such metadata.

    Args:
        what: name of the checkpoint for messages.
        metadata: its metadata.
        trial_type: ``trial_type`` of a checkpoint of the original, or None.

    Raises:
        InvalidTrial: no installed framework loads it.
    """
    frameworks = [
        spec for spec in plugin_registry().specs("framework") if isinstance(spec, FrameworkSpec) and spec.load
    ]
    names = _names(metadata, trial_type)
    for name in names:
        for spec in frameworks:
            if name in (spec.name, *spec.old_names):
                return spec
    installed = ", ".join(spec.name for spec in frameworks) or f"none, try: {package_command('install', 'det-torch')}"
    raise InvalidTrial(
        f"no installed framework loads {what}, a checkpoint of {names[0] if names else None!r} (installed: {installed})"
    )


def _names(metadata: Mapping[str, Any], trial_type: object) -> list[Any]:
    """Return the names of the framework, the most specific first. Checkpoints of the original have several."""
    if "trial_framework" in metadata:
        return [metadata["trial_framework"]]
    names = (trial_type, metadata.get("format"), str(metadata.get("framework") or "").partition("-")[0])
    return [name for name in names if name]
