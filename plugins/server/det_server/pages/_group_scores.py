"""Mean and standard deviation of the best values of groups of experiments and trials."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from det_core.interfaces.records import searcher_metric
from det_server._live_rows import find_divergences
from det_server._rendering import format_metric, format_number
from det_server.pages._list_values import read_columns

if TYPE_CHECKING:
    from det_core.interfaces.records import TrialResult
    from det_core.interfaces.server_store import ExperimentGroup, ServerStore
    from det_core.interfaces.tracking import TrackingStore


def describe_groups(store: TrackingStore, groups: Sequence[ExperimentGroup]) -> Iterator[str]:
    """Yield the mean and the standard deviation of each group in words, or "" if it has none.

    Args:
        store: the tracking store.
        groups: the groups. A single experiment has none, nor have those with different metrics or without
            `ExperimentGroup.members`.
    """
    ids = [each for group in groups for each in group.members]
    if not ids:  # nothing is grouped
        yield from ("" for _ in groups)
        return
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
    mean, deviation = _mean_and_deviation(values)
    parts = {f"mean {metric}": mean, "standard deviation": deviation}
    words = [f"{name} {value}" for name, value in parts.items() if value]
    return ", ".join([*words, *_left_out(missing, diverged)])


def group_trials(store: ServerStore, results: Sequence[TrialResult], name: str, metric: str) -> list[dict[str, Any]]:
    """Return a row for each value that trials have, with the mean and the standard deviation of their best values.

    Args:
        store: the tracking store.
        results: the trials.
        name: name of the value.
        metric: the searcher's metric.
    """
    value_of = read_columns(store, [result.trial.id for result in results], [name])
    groups: dict[Any, list[TrialResult]] = defaultdict(list)
    for result in results:
        groups[value_of.get(result.trial.id, {}).get(name)].append(result)
    diverged = find_divergences(store, dict.fromkeys((result.trial.id for result in results), metric))
    in_order = sorted(groups, key=lambda value: (value is None, isinstance(value, str), value))
    return [{"value": format_number(value), **_row_of_trials(groups[value], diverged)} for value in in_order]


def _row_of_trials(results: Sequence[TrialResult], diverged: Collection[int]) -> dict[str, Any]:
    values = [result.best.value for result in results if result.best]
    mean, deviation = _mean_and_deviation(values)
    later = sum(result.trial.id in diverged for result in results if result.best)
    never = sum(result.trial.id in diverged for result in results if not result.best)
    notes = _left_out(len(results) - len(values) - never, later, never)
    return {"count": len(results), "mean": mean, "deviation": deviation, "note": ", ".join(notes)}


def _mean_and_deviation(values: Sequence[float]) -> tuple[str, str]:
    """Return the mean and the standard deviation as texts, of which the first needs one value, and the second two."""
    if not values:
        return "", ""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return format_metric(mean), ""
    variance = sum((value - mean) * (value - mean) for value in values) / (len(values) - 1)
    return format_metric(mean), format_number(float(f"{math.sqrt(variance):.2g}"))


def _left_out(missing: int, diverged: int, never: int = 0) -> Iterator[str]:
    if missing:
        yield f"{missing} without a number"
    if never:
        yield f"{never} NaN or infinite"
    if diverged:
        yield f"{diverged} NaN or infinite since"
