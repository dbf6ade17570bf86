"""When to report, validate and checkpoint: arithmetic on batch counts, nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from det_core.config import ExperimentConfig, Length, Unit
from det_core.interfaces.framework import TrialAdapter


@dataclass(frozen=True)
class Schedule:
    """Periods in batches since the start of the trial; 0 = never before the end."""

    length: int
    """Batches to train in total."""
    reporting: int
    validation: int
    checkpoint: int

    @classmethod
    def of(cls, config: ExperimentConfig, length: Length, adapter: TrialAdapter) -> Schedule:
        """Turn the config's lengths into batches."""

        def batches(period: Length) -> int:
            # Trials whose lengths are not in records need no global batch size.
            records = adapter.records_per_batch if period.unit is Unit.RECORDS else 1
            return period.to_batches(records_per_batch=records, batches_per_epoch=adapter.batches_per_epoch)

        return cls(
            length=batches(length),
            reporting=config.scheduling_unit,
            validation=batches(config.min_validation_period),
            checkpoint=batches(config.min_checkpoint_period),
        )

    def next_boundary(self, batch: int) -> int:
        """The first count after ``batch`` at which there is something to do; at most ``length``."""
        periods = (self.reporting, self.validation, self.checkpoint)
        return min([self.length, *((batch // period + 1) * period for period in periods if period)])

    def validates_at(self, batch: int) -> bool:
        return batch >= self.length or _due(batch, self.validation)

    def checkpoints_at(self, batch: int) -> bool:
        return batch >= self.length or _due(batch, self.checkpoint)

    def reports_at(self, batch: int) -> bool:
        return self.next_boundary(batch - 1) == batch


def _due(batch: int, period: int) -> bool:
    return bool(period) and batch % period == 0
