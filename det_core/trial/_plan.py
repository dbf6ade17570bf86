"""What a trial is asked to do, in the units of whoever asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from det_core.config import ExperimentConfig, Length, Unit
from det_core.errors import InvalidExperimentException

Period: TypeAlias = Length | tuple[Length, ...]
"""Every so often (0 = never before the end), or exactly at these points."""

NEVER = Length(0, Unit.BATCHES)
_OFTEN = Length(100, Unit.BATCHES)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long to train, and when to do what else on the way."""

    length: Length
    reporting: Period = _OFTEN
    validation: Period = NEVER
    checkpoint: Period = NEVER
    checkpoint_policy: str = "best"
    """``best``, ``all`` or ``none``: which validations are followed by a checkpoint."""
    initial_validation: bool = False
    metric: str | None = None
    """By which ``best`` is told; the validation must report it. None: every validation counts as the best."""
    smaller_is_better: bool = True
    checkpoint_code: bool = False
    """Whether checkpoints hold the trial's code."""

    @classmethod
    def of(cls, config: ExperimentConfig, ordered: Length | None) -> Plan:
        """What a config asks for.

        Args:
            ordered: how long the search wants it to train now; None: as long as the config says.

        Raises:
            InvalidExperimentException: nothing says a length.
        """
        searcher = config.searcher
        length = ordered or searcher.max_length
        if not isinstance(length, Length):
            raise InvalidExperimentException(
                f"searcher {searcher.name!r} has no max_length; for example: max_length: {{batches: 1000}}"
            )
        return cls(
            length=length,
            reporting=Length(config.scheduling_unit, Unit.BATCHES),
            validation=config.min_validation_period,
            checkpoint=config.min_checkpoint_period,
            checkpoint_policy=config.checkpoint_policy,
            initial_validation=config.perform_initial_validation,
            metric=searcher.metric,
            smaller_is_better=searcher.smaller_is_better,
            checkpoint_code=config.checkpoint_code,
        )
