"""What a trial framework implements.

`FrameworkSpec.target` is a function ``run_trial(trial_class, core_context) -> None``. It builds the
framework's adapter for that class and hands it to `det_core.trial.TrialLoop`, which decides when
to train, validate, report, checkpoint and leave. `det_core.testing.framework` tests that it is done right.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Metrics = Mapping[str, Any]


class TrialAdapter(ABC):
    """One process's share of one trial. Called from one thread, in this order::

    load?  started  ( train*  reduced  reported  |  validate  |  snapshot  |  saved )*  close

    With several workers, each has an adapter, and all of them get the same calls between the same batches, so that
    any of these methods may exchange something. What `close` does is up to each by itself: others may have failed.
    """

    @property
    @abstractmethod
    def batches_per_epoch(self) -> int | None:
        """Batches that each worker trains per pass over the data, >= 1; None: the data does not say."""

    @property
    @abstractmethod
    def records_per_batch(self) -> int:
        """The global batch size, which turns lengths in records into batches."""

    @property
    def writes_behind(self) -> bool:
        """Whether what `snapshot` returns may run in another thread while training goes on; not if `sharded`."""
        return False

    @property
    def sharded(self) -> bool:
        """Whether every worker writes a part of each checkpoint, rather than the chief all of it."""
        return False

    def train(self, batches: int, stop: Callable[[], bool]) -> Sequence[Metrics]:
        """Train up to ``batches`` batches, leaving after any batch at which ``stop()`` is true.

        An error of the trial's code is raised, after a log line that says ``batch N``.

        Returns:
            One mapping of plain JSON-able values per batch trained, in order: of this worker's share.
        """
        raise NotImplementedError(f"{type(self).__name__} must override train(), or call TrialLoop.chunks() itself")

    @abstractmethod
    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        """Evaluate on the validation set, leaving between two batches as soon as ``stop()`` is true.

        It must leave nothing behind that training would notice, finished or not.

        Returns:
            The metrics reduced over all workers, the same on each, as plain JSON-able values; None if it left early.
        """

    @abstractmethod
    def snapshot(self) -> Callable[[Path], None]:
        """Take everything that `load` needs for an exact continuation, of all workers.

        Returns:
            Writes it into the directory, once. Called on the chief only, or, if `sharded`, on all workers at once, on
            each with a directory of its own; the checkpoint has the files of all, whose names must differ. With
            `writes_behind` it runs while training goes on, so it must hold copies; the next snapshot is taken only
            after it returned.
        """

    @abstractmethod
    def load(self, path: Path, *, batches_trained: int) -> None:
        """Restore what a snapshot wrote; training continues with batch number ``batches_trained``.

        0 stands for a checkpoint of another trial: take over the weights, and start everything else anew.
        """

    def batches_trained(self, path: Path) -> int | None:
        """After how many batches a checkpoint was saved that `TrialLoop` did not save; None: it does not say."""
        return None

    def started(self) -> None:
        """The checkpoint, if there is one, was loaded; training begins."""

    def reduced(self) -> Metrics:
        """Training metrics that are not means over batches, over all batches of all workers since the last call."""
        return {}

    def reported(self, metrics: Metrics, batch_metrics: Sequence[Metrics]) -> None:
        """Training metrics were reported: the means with `reduced`, and those of each batch, over all workers."""

    def saved(self, storage_id: str) -> None:
        """A checkpoint became complete, at the latest when the next one begins or training ends."""

    def metadata(self) -> Mapping[str, Any]:
        """Keys added to every checkpoint's metadata, such as ``framework``."""
        return {}

    def close(self) -> None:
        """Training has ended, well or not."""
