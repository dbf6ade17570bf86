"""Where a batch is among the epochs, and the means of an epoch's metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from det_core.trial.averaging import numbers_in


class Epochs:
    """Counts on one slot.

    Args:
        batches: per epoch; None: all training is one epoch, which does not end.
    """

    def __init__(self, batches: int | None) -> None:
        self._batches = batches
        self._sums: dict[str, list[float]] = {}
        """Sum and number of values of each metric in the current epoch."""

    def place(self, batch: int) -> tuple[int, int]:
        """The epoch of a batch, and its number within it."""
        return divmod(batch, self._batches) if self._batches else (0, batch)

    def ends(self, trained: int) -> bool:
        """Whether the last of so many batches ends its epoch."""
        return self.place(trained)[1] == 0

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take note of metrics of batches of the present epoch."""
        for row in rows:
            for name, value in row.items():
                if numbers := numbers_in(value):
                    total = self._sums.setdefault(name, [0.0, 0])
                    total[0] += sum(numbers)
                    total[1] += len(numbers)

    def end(self) -> dict[str, float]:
        """The means over the epoch; the next one begins."""
        means = {name: total / count for name, (total, count) in self._sums.items()}
        self._sums = {}
        return means

    def state(self) -> dict[str, Any]:
        """The sums, in types that JSON has."""
        return {name: list(total) for name, total in self._sums.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` returned."""
        self._sums = dict(state)
