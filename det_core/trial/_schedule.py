"""Schedule of reports, validations and checkpoints, as pure arithmetic on batch counts."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TypeAlias

from det_core.config import Length, Unit
from det_core.errors import InvalidExperimentException
from det_core.interfaces.framework import TrialAdapter
from det_core.trial._training_plan import Period, TrainingPlan


@dataclass(frozen=True)
class Every:
    """Every multiple of ``batches``, or never if that is 0."""

    batches: int
    """Number of batches between two points, >= 0."""

    def after(self, batch: int) -> int | None:
        """Return the first point later than ``batch``, or None if there is none."""
        return (batch // self.batches + 1) * self.batches if self.batches else None


@dataclass(frozen=True)
class At:
    """Exactly these points, ascending."""

    points: tuple[int, ...]
    """Batch counts, ascending."""

    def after(self, batch: int) -> int | None:
        """Return the first point later than ``batch``, or None if there is none."""
        index = bisect_right(self.points, batch)
        return self.points[index] if index < len(self.points) else None


Points: TypeAlias = Every | At
"""Batch counts at which something happens."""


@dataclass(frozen=True)
class Schedule:
    """A plan converted to batches since the start of the trial."""

    length: int
    """Total number of batches to train."""
    reporting: Points
    """Points at which training metrics are reported."""
    validation: Points
    """Points at which the trial is validated."""
    checkpoint: Points
    """Points at which a checkpoint is saved."""

    @classmethod
    def of(cls, plan: TrainingPlan, adapter: TrialAdapter) -> Schedule:
        """Convert the plan's lengths to batches.

        Raises:
            InvalidExperimentException: a length is in epochs, and the adapter's data has no length.
        """

        def batches(length: Length) -> int:
            # Trials whose lengths are not in records need no global batch size.
            records = adapter.records_per_batch if length.unit is Unit.RECORDS else 1
            if length.unit is Unit.EPOCHS and length.value and adapter.batches_per_epoch is None:
                raise InvalidExperimentException(
                    f"a length is {length.dump()}, but the training data does not determine the length of an epoch; "
                    "set records_per_epoch, give the data a __len__, or give the length in batches"
                )
            return length.to_batches(records_per_batch=records, batches_per_epoch=adapter.batches_per_epoch or 0)

        def points(period: Period) -> Points:
            if isinstance(period, Length):
                return Every(batches(period))
            return At(tuple(sorted({*map(batches, period)})))

        return cls(
            length=batches(plan.length),
            reporting=points(plan.reporting),
            validation=points(plan.validation),
            checkpoint=points(plan.checkpoint),
        )

    def next_boundary(self, batch: int) -> int:
        """Return the first batch count after ``batch`` at which something happens, at most ``length``."""
        later = (points.after(batch) for points in (self.reporting, self.validation, self.checkpoint))
        return min([self.length, *(point for point in later if point is not None)])

    def validates_at(self, batch: int) -> bool:
        """Return whether the trial is validated after ``batch`` batches."""
        return self._is_at(self.validation, batch)

    def checkpoints_at(self, batch: int) -> bool:
        """Return whether a checkpoint is saved after ``batch`` batches."""
        return self._is_at(self.checkpoint, batch)

    def reports_at(self, batch: int) -> bool:
        """Return whether metrics are reported after ``batch`` batches. They are reported at every boundary."""
        return self.next_boundary(batch - 1) == batch

    def _is_at(self, points: Points, batch: int) -> bool:
        return batch >= self.length or points.after(batch - 1) == batch
