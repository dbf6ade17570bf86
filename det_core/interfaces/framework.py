"""What a trial framework implements.

`FrameworkSpec.target` is a function ``run_trial(trial_class, core_context) -> None``. It builds the
framework's adapter for that class and hands it to `det_core.trial.TrialLoop`, which decides when
to train, validate, report, checkpoint and leave.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Metrics = Mapping[str, Any]


class TrialAdapter(ABC):
    """One process's share of one trial. Called from one thread, in the order the loop decides."""

    @property
    @abstractmethod
    def batches_per_epoch(self) -> int:
        """Batches that each worker trains per pass over the data, >= 1."""

    @property
    @abstractmethod
    def records_per_batch(self) -> int:
        """The global batch size, which turns lengths in records into batches."""

    @abstractmethod
    def train(self, batches: int, stop: Callable[[], bool]) -> Sequence[Metrics]:
        """Train up to ``batches`` batches, leaving after any batch at which ``stop()`` is true.

        Returns:
            One mapping of plain JSON-able values per batch trained, in order.
        """

    @abstractmethod
    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        """Evaluate on the validation set, leaving between two batches as soon as ``stop()`` is true.

        It must leave nothing behind that training would notice, finished or not.

        Returns:
            The reduced metrics, as plain JSON-able values; None if it left early.
        """

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write everything that `load` needs for an exact continuation into the directory."""

    @abstractmethod
    def load(self, path: Path, *, batches_trained: int) -> None:
        """Restore what `save` wrote; training continues with batch number ``batches_trained``."""

    def metadata(self) -> Mapping[str, Any]:
        """Keys added to every checkpoint's metadata, such as ``framework``."""
        return {}
