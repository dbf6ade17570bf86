"""Plan of a trial, with the length and the periods that its config asks for in their original units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from det_core.config import Length, Unit
from det_core.errors import InvalidExperimentException

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
