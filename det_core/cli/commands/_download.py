"""Download of checkpoints to this machine."""

from __future__ import annotations

from pathlib import Path

from det_core.cli.render.experiment_summary import DOWNLOAD_DIRECTORY
from det_core.cli.render.printing import print_json
from det_core.cli.render.transfer_progress import show_transfer
from det_core.interfaces.records import CheckpointRecord
from det_core.interfaces.tracking import TrackingStore


def download_to(store: TrackingStore, checkpoint: CheckpointRecord, output: Path | None, *, as_json: bool) -> int:
    """Download a checkpoint, show the progress, print the path, and return the exit code.

    Args:
        store: the tracking store.
        checkpoint: the checkpoint.
        output: directory for its files, or None for a subdirectory of `DOWNLOAD_DIRECTORY`.
        as_json: whether to print JSON.
    """
    from det_core.experimental._downloads import download_checkpoint

    target = output or DOWNLOAD_DIRECTORY / checkpoint.uuid
    total = sum(number for name, number in checkpoint.resources.items() if name != "metadata.json")
    with show_transfer(total) as progress:
        download_checkpoint(store, checkpoint, target, progress)
    if as_json:
        print_json({"uuid": checkpoint.uuid, "path": target.absolute()})
    else:
        print(f"Checkpoint {checkpoint.uuid} is in {target}")
    return 0
