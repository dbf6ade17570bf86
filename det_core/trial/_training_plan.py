"""Plan of a trial in the units of its config, and its schedule in batches, as pure arithmetic."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from det_core.config import Length, Unit
from det_core.errors import InvalidExperimentException
from det_core.interfaces.framework import TrialAdapter

if TYPE_CHECKING:
    from det_core.config import ExperimentConfig

Period: TypeAlias = Length | tuple[Length, ...]
"""Regular period (0 stands for never before the end), or a sequence of points."""

NEVER = Length(0, Unit.BATCHES)
"""Period of something that happens only at the end."""
_DEFAULT_REPORTING = Length(100, Unit.BATCHES)


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Length of a training and the periods of its reports, validations and checkpoints."""

    length: Length
    """Total length of the training."""
    reporting: Period = _DEFAULT_REPORTING
    """Period of reports of training metrics."""
    validation: Period = NEVER
    """Period of validations."""
    checkpoint: Period = NEVER
    """Period of checkpoints."""
    checkpoint_interval: float = 0
    """Seconds of training after which a checkpoint is saved if `checkpoint` is no period. 0 stands for never."""
    checkpoint_policy: str = "best"
    """Validations that are followed by a checkpoint: ``best``, ``all`` or ``none``."""
    initial_validation: bool = False
    """Whether to validate before training."""
    rehearsal: bool = False
    """Whether to rehearse before training, as `rehearse_trial` does."""
    stop_on_nan: bool = False
    """Whether training ends with an error once the loss or the metric is NaN or infinite."""
    metric: str | None = None
    """Validation metric that decides whether a validation is the best. None treats every validation as the best."""
    smaller_is_better: bool = True
    """Whether a smaller value of that metric is better."""
    checkpoint_code: bool = False
    """Whether checkpoints contain the trial's code."""

    @property
    def longest_interval(self) -> float:
        """Return the seconds of training after which a checkpoint is saved without a reason of its own, or 0 for never.

        A period and the policy ``none`` say that all other checkpoints are unwanted.
        """
        has_period = not isinstance(self.checkpoint, Length) or self.checkpoint.value > 0
        return 0 if has_period or self.checkpoint_policy == "none" else self.checkpoint_interval

    @classmethod
    def of(cls, config: ExperimentConfig | Mapping[str, Any], ordered: Length | None) -> TrainingPlan:
        """Derive the plan from a config.

        Args:
            config: config of the experiment, or its dump.
            ordered: length that the search asks for at present, or None to use the config's.

        Raises:
            InvalidExperimentException: neither of them sets a length.
        """
        keys = config if isinstance(config, Mapping) else config.dump()
        searcher = keys["searcher"]
        length = ordered or searcher.get("max_length")
        if length is None:
            raise InvalidExperimentException(
                f"searcher {searcher['name']!r} has no max_length; for example: max_length: {{batches: 1000}}"
            )
        return cls(
            length=Length.parse(length),
            reporting=Length(keys["scheduling_unit"], Unit.BATCHES),
            validation=Length.parse(keys["min_validation_period"]),
            checkpoint=Length.parse(keys["min_checkpoint_period"]),
            checkpoint_interval=keys["checkpoint_interval"],
            checkpoint_policy=keys["checkpoint_policy"],
            initial_validation=keys["perform_initial_validation"],
            rehearsal=keys["rehearsal"],
            stop_on_nan=keys["stop_on_nan"],
            # Without a search, nothing but the best checkpoint needs the metric.
            metric=searcher["metric"] if ordered or keys["checkpoint_policy"] == "best" else None,
            smaller_is_better=searcher["smaller_is_better"],
            checkpoint_code=keys["checkpoint_code"],
        )


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
