"""Horizontal axes of charts, on which the steps of reports have positions."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from det_core.interfaces.records import ExperimentRecord, TrialRecord

if TYPE_CHECKING:
    from det_core.interfaces.server_store import ServerStore

Positions = Sequence[tuple[int, float]]
"""Pairs of step and position in ascending order. Steps in between lie on straight lines."""
_POINTS = 300
"""Number of positions to which those of a long trial are reduced."""
_MOST_RUNS = 10_000
"""Maximum number of runs of all trials that are read, the first ones."""


def positions_on(
    axis: str, store: ServerStore, trials: Sequence[TrialRecord], group: str, after: int, until: int
) -> dict[int, Positions]:
    """Return the positions of steps for each trial that has any on an axis.

    Args:
        axis: one of `AXES`.
        store: the tracking store.
        trials: the trials.
        group: group of the metrics of the chart.
        after: read only reports of later steps than this.
        until: read only reports of steps up to and including this.
    """
    known = AXES[axis](store, trials, {"group": group, "points": _POINTS, "after": after, "until": until})
    return {trial_id: _ascending(pairs) for trial_id, pairs in known.items() if pairs}


def _epochs(store: ServerStore, trials: Sequence[TrialRecord], which: Mapping[str, Any]) -> dict[int, Positions]:
    """Return reported epochs, or multiples of the length of an epoch if it is known."""
    found: dict[int, Positions] = {}
    for name in ("epochs", "epoch"):
        missing = [trial.id for trial in trials if trial.id not in found]
        # Only trials that report it are read, because all reports of the others would be searched for it.
        found |= store.curves(store.latest_values(missing, name, group=which["group"]), name, **which)
    of = {trial.experiment_id for trial in trials}
    experiments = {one.id: one for one in store.experiments_by_id(of, brief=True)}
    for trial in trials:
        experiment = experiments.get(trial.experiment_id)  # None if it was deleted since the trial was read
        if trial.id not in found and experiment and (batches := _epoch_length(trial, experiment)):
            found[trial.id] = [(0, 0.0), (batches, 1.0)]
    return found


def _epoch_length(trial: TrialRecord, experiment: ExperimentRecord) -> int:
    """Return the number of batches of an epoch by the length of a trial's training in both units, or 0."""
    searcher = experiment.config.get("searcher")
    length = searcher.get("max_length") if isinstance(searcher, Mapping) else None
    is_in_epochs = isinstance(length, Mapping) and "epochs" in length
    return (trial.total_batches or 0) // trial.searcher_length if is_in_epochs and trial.searcher_length else 0


def _clock(store: ServerStore, trials: Sequence[TrialRecord], which: Mapping[str, Any]) -> dict[int, Positions]:
    return dict(store.report_times([trial.id for trial in trials], **which))


def _running_time(store: ServerStore, trials: Sequence[TrialRecord], which: Mapping[str, Any]) -> dict[int, Positions]:
    """Return seconds that each trial has run, without waiting and pauses."""
    spans = defaultdict[int, list[tuple[float, float]]](list)
    for run in store.runs_of_trials([trial.id for trial in trials], limit=_MOST_RUNS):
        if run.start_time:
            end = run.end_time.timestamp() if run.end_time else math.inf
            spans[run.trial_id].append((run.start_time.timestamp(), end))
    return {
        trial_id: _without_pauses(_ascending(pairs), spans[trial_id])
        for trial_id, pairs in _clock(store, trials, which).items()
        if pairs and trial_id in spans
    }


def _without_pauses(pairs: Positions, spans: Sequence[tuple[float, float]]) -> Positions:
    """Return positions in the time that spans cover. The spans follow each other."""
    found, remaining, before = [], deque(spans), 0.0
    for step, time in pairs:
        while len(remaining) > 1 and remaining[1][0] <= time:
            start, end = remaining.popleft()
            before += max(min(end, remaining[0][0]) - start, 0.0)
        start, end = remaining[0]
        found.append((step, before + max(min(time, end) - start, 0.0)))
    return found


def _ascending(pairs: Positions) -> Positions:
    """Return positions that never go back, whatever clocks and scripts say."""
    steps, places = zip(*pairs, strict=True)
    return list(zip(steps, accumulate(places, max), strict=True))


AXES: Mapping[str, Callable[..., dict[int, Positions]]] = {
    "epoch": _epochs,
    "time": _running_time,
    "clock": _clock,
}
"""Axes by the names that URLs have. Batches are steps themselves."""
