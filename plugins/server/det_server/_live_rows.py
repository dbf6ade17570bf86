"""Rows of experiments and trials, as texts that open pages show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from det_core.interfaces.records import (
    ExperimentRecord,
    ExperimentSummary,
    State,
    TrialRecord,
    TrialResult,
    searcher_metric,
)
from det_core.text import format_slot_hours, format_uncounted_runs
from det_core.tracking.control import lacks_runner
from det_server._rendering import (
    format_divergence,
    format_duration,
    format_excerpt,
    format_metric,
    format_number,
    format_percent,
    state_word,
)

if TYPE_CHECKING:
    from det_core.interfaces.tracking import TrackingStore

RowValues = Mapping[str, str]
"""Names of values mapped to their texts."""


@dataclass(frozen=True)
class Topics:
    """Subjects of a page.

    Args:
        experiments: ids of the experiments whose rows the page shows.
        trials: ids of the trials whose rows, curves or logs it shows.
        newest: whether it shows the newest experiments, so that it must learn of new ones.
    """

    experiments: frozenset[int] = frozenset()
    trials: frozenset[int] = frozenset()
    newest: bool = False


class LiveRows:
    """Reader of the rows that open pages show.

    Args:
        store: the tracking store.
    """

    def __init__(self, store: TrackingStore) -> None:
        self._store = store

    def read(self, topics: Topics) -> dict[str, RowValues]:
        """Return the rows of a page by key."""
        rows: dict[str, RowValues] = {}
        if topics.experiments:
            rows |= self._experiment_rows(topics.experiments)
        if topics.trials:
            rows |= self._trial_rows(topics.trials)
        if topics.newest:
            newest = self._store.experiments(limit=1, brief=True)
            rows["experiments"] = {"newest": str(newest[0].id if newest else 0)}
        return rows

    def _experiment_rows(self, ids: Collection[int]) -> dict[str, RowValues]:
        experiments = self._store.experiments_by_id(ids, brief=True)
        summaries = self._store.experiment_summaries([one.id for one in experiments])
        rows = experiment_values(self._store, experiments, summaries)
        return {f"experiment/{experiment_id}": values for experiment_id, values in rows.items()}

    def _trial_rows(self, ids: Collection[int]) -> dict[str, RowValues]:
        rows = trial_values(self._store, results_of_trials(self._store, self._store.trials_by_id(ids, brief=True)))
        return {f"trial/{trial_id}": values for trial_id, values in rows.items()}


def experiment_values(
    store: TrackingStore, experiments: Collection[ExperimentRecord], summaries: Mapping[int, ExperimentSummary]
) -> dict[int, RowValues]:
    """Return the texts of experiments that change, by id.

    Args:
        store: the tracking store.
        experiments: the experiments.
        summaries: their summaries by id.
    """
    ids = [one.id for one in experiments]
    runners, seconds = store.lease_holders(ids), store.running_seconds(ids)
    bests = {
        trial_id: searcher_metric(one.config)[0]
        for one in experiments
        if (trial_id := summaries[one.id].best_trial_id) is not None
    }
    failed = {trial.id for trial in store.trials_by_id(list(bests), brief=True) if trial.state is State.ERROR}
    diverged = find_divergences(store, bests)
    return {
        one.id: {
            **_common_values(one, seconds[one.id]),
            "best": format_metric(summary.best.value if summary.best else None),
            "best_failed": "failed trial" if summary.best_trial_id in failed else "",
            "best_diverged": diverged.get(summary.best_trial_id or 0, ""),
            "trials": str(summary.trials),
            "failed": f"{summary.failed_trials} of {summary.trials} failed" if summary.failed_trials else "",
            "slot_hours": format_slot_hours(summary.slot_hours),
            "uncounted": format_uncounted_runs(summary.uncounted_runs),
            "error": format_excerpt(one.error or ""),
            "orphaned": "no runner" if lacks_runner(one, runners.get(one.id)) else "",
            "checkpoints": str(summary.checkpoints),
        }
        for one in experiments
        for summary in [summaries[one.id]]
    }


def results_of_trials(store: TrackingStore, trials: Collection[TrialRecord]) -> list[TrialResult]:
    """Return trials of any experiments with their best and latest values."""
    by_experiment = defaultdict[int, list[int]](list)
    for trial in trials:
        by_experiment[trial.experiment_id].append(trial.id)
    return [
        result for one, ids in by_experiment.items() for result in store.trial_results(one, trial_ids=ids, brief=True)
    ]


def trial_values(store: TrackingStore, results: Iterable[TrialResult]) -> dict[int, RowValues]:
    """Return the texts of trials that change, by id.

    Args:
        store: the tracking store.
        results: trials of any experiments.
    """
    by_id = {result.trial.id: result for result in results}
    wanted = {result.trial.experiment_id for result in by_id.values()}
    experiments = store.experiments_by_id(wanted, brief=True)
    metrics = {one.id: searcher_metric(one.config)[0] for one in experiments}
    diverged = find_divergences(
        store, {trial_id: metrics.get(result.trial.experiment_id, "") for trial_id, result in by_id.items()}
    )
    seconds = store.trial_running_seconds(by_id)
    return {
        trial_id: _trial_values(result, diverged.get(trial_id, ""), seconds[trial_id])
        for trial_id, result in by_id.items()
    }


def find_divergences(store: TrackingStore, metrics: Mapping[int, str]) -> dict[int, str]:
    """Return since when the validations of trials are NaN or infinite, for those whose are.

    Args:
        store: the tracking store.
        metrics: ids of the trials mapped to the metric.
    """
    of_metric: dict[str, list[int]] = {}
    for trial_id, metric in metrics.items():
        of_metric.setdefault(metric, []).append(trial_id)
    return {
        trial_id: format_divergence(*since)
        for metric, ids in of_metric.items()
        for trial_id, since in store.divergences(ids, metric, group="validation").items()
    }


def _trial_values(result: TrialResult, diverged: str, seconds: float) -> RowValues:
    trial, best = result.trial, result.best
    return {
        **_common_values(trial, seconds),
        "batches": format_number(trial.steps_completed),
        "best": format_metric(best.value if best else None),
        "best_at": format_number(best.steps_completed if best else None),
        "diverged": diverged,
        "run": str(trial.run_id),
    }


def _common_values(record: ExperimentRecord | TrialRecord, seconds: float) -> dict[str, str]:
    return {
        "state": record.state.value,
        "state_word": state_word(record.state),
        "progress": f"{record.progress:.4f}",
        "progress-text": format_percent(record.progress),
        "took": format_duration(seconds, is_over=record.state.final),
    }
