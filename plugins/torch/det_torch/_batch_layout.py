"""Division of the records of all epochs into numbered batches, also after a change of the number of slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class BatchLayout:
    """Division of the records of all epochs, in the order of a sampler, into batches of one slot.

    Batches are numbered over all slots and epochs. No batch has records of two epochs, so the last one of an epoch may
    be short.

    Attributes:
        length: number of records of an epoch, >= 1.
        batch_size: number of records of a batch, >= 1.
        drop_last: whether a short last batch of an epoch is left out.
        slots: number of slots, each of which trains one batch of each step.
        number: number of the batch at which the layout begins.
        epoch: epoch of the first record of that batch.
        records: number of records of that epoch which precede it.
    """

    length: int
    batch_size: int = 1
    drop_last: bool = False
    slots: int = 1
    number: int = 0
    epoch: int = 0
    records: int = 0

    def locate(self, number: int) -> tuple[int, range]:
        """Return the epoch of a batch, and the numbers of the batches of that epoch in this layout."""
        start, end = self.number, self.number + self._count(self.length - self.records)
        if number < end:
            return self.epoch, range(start, end)
        size = self._count(self.length)
        passes = (number - end) // size
        start = end + passes * size
        return self.epoch + 1 + passes, range(start, start + size)

    def skipped(self, epoch: int) -> int:
        """Return the number of records of an epoch that were trained before this layout began."""
        return self.records if epoch == self.epoch else 0

    def position(self) -> dict[str, int]:
        """Return plain data from which `continued` restores the layout."""
        return {name: getattr(self, name) for name in ("slots", "batch_size", "number", "epoch", "records")}

    def continued(self, position: Mapping[str, int], step: int) -> BatchLayout:
        """Return the layout in which this one continues after a number of steps in another one.

        Args:
            position: what `position` of the other one returned.
            step: number of steps since the beginning of the trial.
        """
        before = replace(
            self,
            slots=position["slots"],
            batch_size=position["batch_size"],
            number=position["number"],
            epoch=position["epoch"],
            records=position["records"],
        )
        if (before.slots, before.batch_size) == (self.slots, self.batch_size):
            return before
        epoch, numbers = before.locate(step * before.slots)
        trained = (step * before.slots - numbers.start) * before.batch_size
        return replace(self, number=step * self.slots, epoch=epoch, records=before.skipped(epoch) + trained)

    def _count(self, records: int) -> int:
        """Return the number of batches into which the last records of an epoch are divided."""
        return records // self.batch_size if self.drop_last else -(-records // self.batch_size)
