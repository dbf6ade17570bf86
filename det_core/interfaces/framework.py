"""Interface of a trial framework.

`FrameworkSpec.target` is a function ``run_trial(trial_class, core_context) -> None``. It builds the framework's adapter
for that class and passes it to `det_core.trial.TrialLoop`, which decides when to train, validate, report, checkpoint
and stop. `det_testing.framework` tests the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")
Metrics = Mapping[str, Any]
"""Metric names mapped to values."""
SCHEDULE_END = "schedule_end"
"""Key of a checkpoint's metadata for the number of batches after which the first schedule of the trial ends, such as
that of its learning rate, apart from those that end earlier than the training. ``det experiment continue`` names it
before it trains longer."""


class OnAllWorkers(Protocol):
    """Function that calls another one on all workers, and returns the results of all in order of rank.

    The other function may take only so long. If it raises on one worker, all raise.
    """

    def __call__(self, work: Callable[[], _T], /) -> list[_T]: ...


class TrialAdapter(ABC):
    """Adapter through which `det_core.trial.TrialLoop` trains one trial in one process.

    Its methods are called from one thread, in this order::

        load?  started  ( write_initial_state  rehearse )?
            ( train*  reduced  reported  |  validate  |  snapshot  |  saved )*  close

    With several workers, each has an adapter, and all adapters receive the same calls between the same batches. Any of
    these methods may therefore communicate with the other workers, except `close`, because other workers may have
    failed.
    """

    @property
    @abstractmethod
    def batches_per_epoch(self) -> int | None:
        """Number of batches that each worker trains per pass over the data, >= 1, or None if the data has no length."""

    @property
    @abstractmethod
    def records_per_batch(self) -> int:
        """Global batch size, which converts lengths in records to batches."""

    @property
    def writes_behind(self) -> bool:
        """Whether the function that `snapshot` returns may run in the background while training continues.

        It must be False if `sharded`.
        """
        return False

    @property
    def sharded(self) -> bool:
        """Whether every worker writes a part of each checkpoint, instead of the chief writing all of it."""
        return False

    def train(self, batches: int, stop: Callable[[], bool]) -> Sequence[Metrics]:
        """Train up to ``batches`` batches, and stop early after any batch at which ``stop()`` is true.

        Errors in the trial's code propagate after a log line that contains ``batch N``.

        Returns:
            The metrics of each trained batch in order, for this worker's share, as JSON-compatible values or as NumPy
            arrays of float64, int64 or bool, which cost less than lists.
        """
        raise NotImplementedError(f"{type(self).__name__} must override train(), or call TrialLoop.chunks() itself")

    @abstractmethod
    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        """Evaluate on the validation set, and stop between two batches as soon as ``stop()`` is true.

        Finished or not, it must not change any state that training depends on.

        Returns:
            The metrics reduced over all workers, the same on each, as JSON-compatible values. None if it stopped early.
        """

    @abstractmethod
    def snapshot(self) -> Callable[[Path], None]:
        """Capture everything on all workers that `load` needs for an exact continuation.

        Returns:
            A function that is called once to write the checkpoint into a directory. It is called on the chief only, or,
            if `sharded`, on all workers at once, each with its own directory. File names must differ between the
            workers, because the checkpoint contains the files of all. With `writes_behind` the function runs while
            training continues, so it must hold copies. The next snapshot is taken only after it has returned.
        """

    @abstractmethod
    def load(self, path: Path, *, batches_trained: int) -> None:
        """Restore the state that a snapshot wrote. Training continues with batch number ``batches_trained``.

        Args:
            path: directory of the checkpoint.
            batches_trained: number of batches trained. 0 stands for a checkpoint of another trial: load only the
                weights, and start everything else afresh.
        """

    def batches_trained(self, path: Path) -> int | None:
        """Return the number of batches trained in a checkpoint that `TrialLoop` did not save, or None if unknown."""
        return None

    def started(self) -> None:
        """Called before the first batch, after the checkpoint, if any, was loaded."""

    def write_initial_state(self, path: Path, *, most: int) -> int:
        """Write the state before the first batch, as a snapshot does, for a rehearsal. Called on the chief only.

        The trial's callbacks must not notice, and nothing that training depends on may change. By default, nothing is
        written, and det stores a file of its own instead.

        Args:
            path: directory to write into.
            most: largest size in bytes. A larger state is not written.

        Returns:
            The size of the smallest checkpoint that training will save, in bytes. 0 if it is unknown.
        """
        return 0

    def rehearse(self, together: OnAllWorkers) -> Metrics | None:
        """Evaluate one batch as `validate` does, and restore whatever `snapshot` captures.

        The trial's callbacks must not notice. Errors may propagate, and become a warning.

        Args:
            together: calls a function on all workers. The trial's own code must run in such a function.

        Returns:
            The metrics, the same on all workers. None if not all names are known, because the trial has no evaluation
            by batches or may add others later.
        """
        return None

    def reduced(self) -> Metrics:
        """Return training metrics that are not means over batches.

        They cover all batches of all workers since the last call.
        """
        return {}

    def reported(self, metrics: Metrics, batch_metrics: Sequence[Metrics]) -> None:
        """Called after training metrics were reported.

        Args:
            metrics: means over the batches and workers, together with the metrics from `reduced`.
            batch_metrics: metrics of each batch, over all workers.
        """

    def saved(self, storage_id: str) -> None:
        """Called after a checkpoint became complete, at the latest when the next one begins or training ends."""

    def metadata(self) -> Mapping[str, Any]:
        """Return keys to add to every checkpoint's metadata, such as ``framework`` and `SCHEDULE_END`."""
        return {}

    def close(self) -> None:
        """Release resources. Called when training has ended, also after an error."""
