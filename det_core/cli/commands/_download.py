"""Download of checkpoints to this machine."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from det_core.cli.render.experiment_summary import DOWNLOAD_DIRECTORY
from det_core.cli.render.printing import print_json
from det_core.cli.render.sanitized_streams import unwrap_stream
from det_core.interfaces.records import CheckpointRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.text import format_size

_UPDATE_SECONDS = 0.1
"""Minimum seconds between two updates of the line."""
_CLEAR = "\r\x1b[K"


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


@contextmanager
def show_transfer(total: int) -> Iterator[Callable[[int], None] | None]:
    """Show the progress of a transfer in one line on stderr. The line is erased at the end of the block.

    Args:
        total: total number of bytes.

    Yields:
        Function to call with each number of bytes transferred, from any thread, or None if stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield None
        return
    lock, done, drawn = threading.Lock(), 0, 0.0

    def moved(count: int) -> None:
        nonlocal done, drawn
        with lock:
            done += count
            if time.monotonic() >= drawn + _UPDATE_SECONDS:
                drawn = time.monotonic()
                _draw(f"{format_size(done)} of {format_size(total)}")

    try:
        yield moved
    finally:
        _draw("")


def _draw(line: str) -> None:
    with suppress(OSError):  # a closed terminal must not stop the transfer
        print(f"{_CLEAR}{line}", end="", file=unwrap_stream(sys.stderr), flush=True)
