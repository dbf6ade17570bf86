"""The TensorBoard files of a trial's workers, on their way into checkpoint storage; for frameworks."""

from __future__ import annotations

from pathlib import Path, PurePath

from det_core.core import TensorboardMode, TrainContext


def upload(train: TrainContext) -> None:
    """Store what changed, on each rank; in TensorboardMode.AUTO the chief's core context stores it by itself.

    Raises:
        StorageError: the storage refused, in TensorboardMode.MANUAL.
    """
    board, by_itself = train._tensorboard, train._tensorboard.mode is TensorboardMode.AUTO
    if board._rank:
        board.dispensable = _draws_curves  # which there would be of every rank
        store = board.try_to_upload if by_itself else board.upload
        store(lambda path: not _draws_curves(path), _name_with_rank)
    elif not by_itself:
        board.upload()


def _draws_curves(path: Path) -> bool:
    return "tfevents" in path.name


def _name_with_rank(path: Path, rank: int) -> PurePath:
    """Profilers of several ranks may write files of one name."""
    return path.with_name(f"rank{rank}.{path.name}")
