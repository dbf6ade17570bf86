"""Losses and searcher's metrics that are NaN or infinite, and the best checkpoint from before them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from det_core.interfaces.records import CheckpointRecord, MetricsReport, TrialRecord
from det_core.interfaces.tracking import TrackingStore

LOSS = "loss"
"""Training metric that should be finite."""


@dataclass(frozen=True, kw_only=True)
class NonFiniteMetric:
    """Metric of a trial that is NaN or infinite from a batch on."""

    trial_id: int
    """Id of the trial."""
    metric: str
    """Name of the metric."""
    value: float
    """First such value."""
    since: int
    """Number of batches trained with that value, from 1."""

    def __str__(self) -> str:
        return f"{self.metric} is {'NaN' if math.isnan(self.value) else 'infinite'} since batch {self.since:,}"

    def concerns(self, checkpoint: CheckpointRecord) -> bool:
        """Return whether a checkpoint of the trial was saved at that batch or later."""
        return checkpoint.trial_id == self.trial_id and (checkpoint.steps_completed or 0) >= self.since


def stays_non_finite(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether batches have a loss, and all of their losses are NaN or infinite.

    Args:
        rows: metrics of each batch, with summaries in place of arrays.
    """
    losses = [value for row in rows if (value := _number(row.get(LOSS))) is not None]
    return bool(losses) and not any(map(math.isfinite, losses))


def find_non_finite_metrics(store: TrackingStore, trials: Sequence[TrialRecord], metric: str) -> list[NonFiniteMetric]:
    """Return the losses of trials that stay NaN or infinite for a report, and the searcher's metrics that are it last.

    Of a trial whose metrics are finite at the end, few reports are read.

    Args:
        store: the tracking store.
        trials: trials of one experiment.
        metric: the searcher's metric.
    """
    ids = [trial.id for trial in trials]
    groups = {"training": LOSS, "validation": metric}
    begun = {group: store.divergences(ids, name, group=group) for group, name in groups.items()}
    found: list[NonFiniteMetric] = []
    for trial in trials:
        for group, name in groups.items():
            if trial.id in begun[group]:
                step, _ = begun[group][trial.id]
                found += _first_non_finite(trial.id, name, store.metrics(trial.id, group=group, after=step - 1))
    return found


def find_usable_checkpoint(
    store: TrackingStore, experiment_id: int, non_finite: Sequence[NonFiniteMetric]
) -> tuple[float | None, CheckpointRecord | None]:
    """Return the best checkpoint of an experiment with its value, or the newest one if none was validated.

    Args:
        store: the tracking store.
        experiment_id: the experiment.
        non_finite: metrics that are not finite. Checkpoints that they concern do not count.
    """

    def is_usable(checkpoint: CheckpointRecord) -> bool:
        return not any(metric.concerns(checkpoint) for metric in non_finite)

    for scored in store.scored_checkpoints(experiment_id, limit=None if non_finite else 1):
        if scored.value is not None and is_usable(scored.checkpoint):
            return scored.value, scored.checkpoint
    newest = reversed(store.checkpoints(experiment_id=experiment_id))
    return None, next(filter(is_usable, newest), None)


def _first_non_finite(trial_id: int, name: str, reports: Iterator[MetricsReport]) -> list[NonFiniteMetric]:
    first: tuple[int, float] | None = None
    for report in reports:
        rows = report.batch_metrics or [report.metrics]
        for batch, row in enumerate(rows, report.steps_completed - len(rows) + 1):
            value = _number(row.get(name))
            if value is not None and math.isfinite(value):
                first = None
            elif value is not None and first is None:
                first = batch, value
        if first and first[0] <= report.steps_completed - len(rows) + 1:
            return [NonFiniteMetric(trial_id=trial_id, metric=name, value=first[1], since=first[0])]
    return []


def _number(value: Any) -> float | None:
    if isinstance(value, Mapping):  # summary of an array
        value = value.get("mean")
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None
