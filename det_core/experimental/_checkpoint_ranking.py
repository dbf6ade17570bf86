"""Ranking of checkpoints by a validation metric."""

from __future__ import annotations

import math
import warnings
from numbers import Real

from det_core.errors import NoCheckpoint
from det_core.interfaces.records import CheckpointRecord, ExperimentRecord, searcher_metric
from det_core.interfaces.tracking import TrackingStore
from det_core.metric_directions import known_direction


def rank_checkpoints(
    store: TrackingStore,
    experiment: ExperimentRecord,
    sort_by: str | None,
    smaller_is_better: bool | None,
    *,
    trial_id: int | None = None,
) -> list[CheckpointRecord]:
    """Return the completed checkpoints of an experiment or trial, best first. Equal ones are sorted oldest first.

    Args:
        store: tracking store.
        experiment: the experiment.
        sort_by: validation metric. None for the searcher's metric, which ignores ``smaller_is_better``.
        smaller_is_better: whether smaller values of ``sort_by`` are better. None for the searcher's setting.
        trial_id: include only checkpoints of this trial.

    Raises:
        NoCheckpoint: no checkpoint was validated with a finite value of that metric. NaN is never the best.
    """
    whose = f"experiment {experiment.id}" if trial_id is None else f"trial {trial_id}"
    configured, smaller = searcher_metric(experiment.config)
    metric = sort_by or configured
    if sort_by and smaller_is_better is not None:
        smaller = smaller_is_better
    elif metric != configured:
        better = "smaller" if smaller else "larger"
        known = known_direction(metric)
        warnings.warn(
            f"{better} values of {metric!r} are assumed to be better, as the config says for {configured!r}; "
            f"pass smaller_is_better={'True or False' if known is None else known}",
            stacklevel=4,
        )
    checkpoints = store.checkpoints(experiment_id=experiment.id, trial_id=trial_id)
    validations = store.checkpoint_validations(experiment_id=experiment.id, trial_id=trial_id)
    values = {uuid: metrics[metric] for uuid, metrics in validations.items() if _finite(metrics.get(metric))}
    fitting = [one for one in checkpoints if one.uuid in values]
    if not fitting:
        names = sorted({name for metrics in validations.values() for name in metrics})
        raise NoCheckpoint(
            f"{whose} has no checkpoint that was validated with a finite {metric!r}; it has {len(checkpoints)} "
            f"completed checkpoints, and their validation metrics are: {', '.join(names) or 'none'}"
        )
    return sorted(fitting, key=lambda one: values[one.uuid] if smaller else -values[one.uuid])


def _finite(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
