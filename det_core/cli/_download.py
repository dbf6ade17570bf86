"""Download of checkpoints to this machine."""

from __future__ import annotations

from pathlib import Path

from det_core.cli._output import print_json
from det_core.cli._progress import transferred
from det_core.interfaces.tracking import Checkpoint

DIRECTORY = Path("checkpoints")
"""Default directory for downloads. Each checkpoint gets a subdirectory with its uuid."""


def download_to(checkpoint: Checkpoint, output: Path | None, *, as_json: bool) -> int:
    """Download a checkpoint, show the progress, print the path, and return the exit code.

    Args:
        checkpoint: the checkpoint.
        output: directory for its files, or None for a subdirectory of `DIRECTORY`.
        as_json: whether to print JSON.
    """
    from det_core.experimental._files import download

    target = output or DIRECTORY / checkpoint.uuid
    total = sum(number for name, number in checkpoint.resources.items() if name != "metadata.json")
    with transferred(total) as progress:
        download(checkpoint, target, progress)
    if as_json:
        print_json({"uuid": checkpoint.uuid, "path": target.absolute()})
    else:
        print(f"Checkpoint {checkpoint.uuid} is in {target}")
    return 0
