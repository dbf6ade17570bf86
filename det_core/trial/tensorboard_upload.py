"""Upload of the TensorBoard files of a trial's workers to checkpoint storage. For use by frameworks."""

from __future__ import annotations

from pathlib import Path, PurePath

from det_core.core import TensorboardMode, TrainContext


def upload_tensorboard_files(train: TrainContext) -> None:
    """Store files that have changed, on each rank.

    In TensorboardMode.AUTO, the chief's core context stores its own files.

    Raises:
        StorageError: the storage failed, in TensorboardMode.MANUAL.
    """
    board, by_itself = train._tensorboard, train._tensorboard.mode is TensorboardMode.AUTO
    if board._rank:
        board.dispensable = _draws_curves  # otherwise each rank would add the same curves
        store = board.try_to_upload if by_itself else board.upload
        store(lambda path: not _draws_curves(path), _name_with_rank)
    elif not by_itself:
        board.upload()


def _draws_curves(path: Path) -> bool:
    return "tfevents" in path.name


def _name_with_rank(path: Path, rank: int) -> PurePath:
    """Return a file name that contains the rank, because profilers of several ranks may use the same names."""
    return path.with_name(f"rank{rank}.{path.name}")
