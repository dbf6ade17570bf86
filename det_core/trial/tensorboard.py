"""The TensorBoard files of a trial's workers, on their way into checkpoint storage; for frameworks."""

from __future__ import annotations

from pathlib import Path, PurePath

from det_core.core import TensorboardMode, TrainContext


def upload(train: TrainContext) -> None:
    """Store what changed; in TensorboardMode.AUTO the core context stores it by itself.

    Raises:
        StorageError: the storage refused.
    """
    if train._tensorboard.mode is TensorboardMode.MANUAL:
        is_chief = train._tensorboard._rank == 0
        # Of the other ranks only what is not in event files, which would draw every curve once per rank.
        train.upload_tensorboard_files(lambda path: is_chief or "tfevents" not in path.name, _name_with_rank)


def _name_with_rank(path: Path, rank: int) -> PurePath:
    """Profilers of several ranks may write files of one name."""
    return path.with_name(f"rank{rank}.{path.name}") if rank else path
