"""Mean and standard deviation of the best values of experiments, for the headers of groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from det_core.interfaces.records import searcher_metric
from det_server._live_rows import find_divergences
from det_server._rendering import format_metric, format_number

if TYPE_CHECKING:
    from det_core.interfaces.server_store import ExperimentGroup
    from det_core.interfaces.tracking import TrackingStore


def describe_groups(store: TrackingStore, groups: Sequence[ExperimentGroup]) -> Iterator[str]:
    """Yield the mean and the standard deviation of each group in words, or "" if it has none.

    Args:
        store: the tracking store.
        groups: the groups. A single experiment has none, nor have those with different metrics or without
            `ExperimentGroup.members`.
    """
    ids = [each for group in groups for each in group.members]
    metrics = {one.id: searcher_metric(one.config) for one in store.experiments_by_id(ids, brief=True)}
    bests = {
        each: (summary.best_trial_id, summary.best.value)
        for each, summary in store.experiment_summaries(list(metrics)).items()
        if summary.best and summary.best_trial_id is not None
    }
    diverged = find_divergences(store, {trial_id: metrics[each][0] for each, (trial_id, _) in bests.items()})
    for group in groups:
        found = [bests[each] for each in group.members if each in bests]
        common = {metrics[each] for each in group.members if each in bests}
        if len(group.members) == 1 or len(common) != 1:
            yield ""
            continue
        yield describe_values(
            common.pop()[0],
            [value for _, value in found],
            missing=len(group.members) - len(found),
            diverged=sum(trial_id in diverged for trial_id, _ in found),
        )


def describe_values(metric: str, values: Sequence[float], *, missing: int, diverged: int) -> str:
    """Return the mean and the standard deviation of values in words.

    Args:
        metric: name of the metric.
        values: the values, at least one.
        missing: number of experiments without a finite value.
        diverged: number of those with a value whose metric has been NaN or infinite since.
    """
    mean = sum(values) / len(values)
    words = [f"mean {metric} {format_metric(mean)}"]
    if len(values) > 1:
        variance = sum((value - mean) * (value - mean) for value in values) / (len(values) - 1)
        words.append(f"standard deviation {format_number(float(f'{math.sqrt(variance):.2g}'))}")
    if missing:
        words.append(f"{missing} without a number")
    if diverged:
        words.append(f"{diverged} NaN or infinite since")
    return ", ".join(words)
