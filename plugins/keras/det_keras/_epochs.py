"""Position of batches in epochs, and means of an epoch's metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from det_core.trial.metric_averages import summarize_numbers


class Epochs:
    """Epochs of one slot.

    Args:
        batches: the number of batches per epoch. With None, all training is one endless epoch.
    """

    def __init__(self, batches: int | None) -> None:
        self._batches = batches
        self._sums: dict[str, list[float]] = {}
        """Sum and number of values of each metric in the current epoch."""

    def place(self, batch: int) -> tuple[int, int]:
        """Return the epoch of a batch, and the number of the batch within the epoch."""
        return divmod(batch, self._batches) if self._batches else (0, batch)

    def ends(self, trained: int) -> bool:
        """Return whether an epoch ends after ``trained`` batches."""
        return self.place(trained)[1] == 0

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add the metrics of batches to the sums of the current epoch."""
        for row in rows:
            for name, value in row.items():
                if found := summarize_numbers(value):
                    total = self._sums.setdefault(name, [0.0, 0])
                    total[0] += found.sum
                    total[1] += found.count

    def end(self) -> dict[str, float]:
        """Return the means over the epoch, and begin the next one."""
        means = {name: total / count for name, (total, count) in self._sums.items()}
        self._sums = {}
        return means

    def state(self) -> dict[str, Any]:
        """Return the sums as JSON-compatible values."""
        return {name: list(total) for name, total in self._sums.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the sums that `state` returned."""
        self._sums = dict(state)
