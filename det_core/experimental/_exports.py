"""Exports of recorded checkpoints to formats of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from det_core.errors import DetError, InvalidTrial
from det_core.experimental._checkpoint_framework import framework_of
from det_core.experimental._downloads import atomic_directory, download_checkpoint
from det_core.interfaces.records import CheckpointRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.plugins import plugin_registry
from det_core.scratch import scratch_directory


def default_export_path(uuid: str) -> Path:
    """Return the directory for the export of a checkpoint for which the user names none."""
    return Path("exports", uuid)


def export_checkpoint(
    store: TrackingStore,
    checkpoint: CheckpointRecord,
    format: str,
    target: Path,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write the weights of a checkpoint into a new or empty directory, which appears whole or not at all.

    Args:
        store: the tracking store.
        checkpoint: checkpoint to export.
        format: a format that its framework offers.
        target: new or empty directory.
        progress: as for `download_checkpoint`.

    Raises:
        DetError: the target is in use, or the checkpoint is not complete or has no such format.
    """
    try:
        spec = framework_of(f"checkpoint {checkpoint.uuid}", checkpoint.metadata)
    except InvalidTrial as error:
        raise DetError(f"{error}; to get its files as they are: det checkpoint download {checkpoint.uuid}") from error
    if format not in spec.exports:
        expected = f"expected {', '.join(spec.exports)}" if spec.exports else "its framework exports none"
        raise DetError(
            f"a checkpoint of {spec.name!r} has no format {format!r}: {expected}; to get its files as they are: "
            f"det checkpoint download {checkpoint.uuid}"
        )
    export = plugin_registry().exporter(spec, format)
    with atomic_directory(target) as exported, scratch_directory("export") as scratch:
        source = scratch / checkpoint.uuid
        download_checkpoint(store, checkpoint, source, progress)
        exported.mkdir()
        export(source, exported)
