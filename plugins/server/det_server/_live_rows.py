"""Rows of experiments and trials, as texts that open pages show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from det_core.interfaces.records import ExperimentRecord, TrialRecord, TrialResult
from det_core.tracking.control import lacks_runner
from det_server._rendering import format_metric, format_number, format_percent, format_record_time, state_word

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

    @staticmethod
    def keys(topics: Topics) -> Iterator[str]:
        """Yield the keys of the rows of a page."""
        yield from (f"experiment/{identity}" for identity in topics.experiments)
        yield from (f"trial/{identity}" for identity in topics.trials)
        if topics.newest:
            yield "experiments"

    def read(self, pages: Iterable[Topics]) -> dict[str, RowValues]:
        """Return the rows of pages by key.

        Args:
            pages: subjects of the pages.
        """
        pages = list(pages)
        experiments = frozenset[int]().union(*(one.experiments for one in pages))
        trials = frozenset[int]().union(*(one.trials for one in pages))
        rows: dict[str, RowValues] = {}
        if experiments:
            rows |= self._experiment_rows(experiments)
        if trials:
            rows |= self._trial_rows(trials)
        if any(one.newest for one in pages):
            newest = self._store.experiments(limit=1)
            rows["experiments"] = {"newest": str(newest[0].id if newest else 0)}
        return rows

    def _experiment_rows(self, ids: Collection[int]) -> dict[str, RowValues]:
        experiments = self._store.experiments_by_id(ids)
        summaries = self._store.experiment_summaries([one.id for one in experiments])
        runners = self._store.lease_holders()
        return {
            f"experiment/{one.id}": {
                **_common_values(one),
                "best": format_metric(summary.best.value if summary.best else None),
                "trials": str(summary.trials),
                "failed": str(summary.failed_trials or ""),
                "orphaned": "yes" if lacks_runner(one, runners.get(one.id)) else "",
                "checkpoints": str(summary.checkpoints),
            }
            for one in experiments
            for summary in [summaries[one.id]]
        }

    def _trial_rows(self, ids: Collection[int]) -> dict[str, RowValues]:
        results = results_of_trials(self._store, self._store.trials_by_id(ids))
        return {f"trial/{trial_id}": _trial_values(result) for trial_id, result in results.items()}


def results_of_trials(store: TrackingStore, trials: Collection[TrialRecord]) -> dict[int, TrialResult]:
    """Return trials of any experiments with their best and latest values, by id."""
    by_experiment = defaultdict[int, list[int]](list)
    for trial in trials:
        by_experiment[trial.experiment_id].append(trial.id)
    results = (result for one, ids in by_experiment.items() for result in store.trial_results(one, trial_ids=ids))
    return {result.trial.id: result for result in results}


def _trial_values(result: TrialResult) -> RowValues:
    trial, best = result.trial, result.best
    return {
        **_common_values(trial),
        "batches": format_number(trial.steps_completed),
        "best": format_metric(best.value if best else None),
        "best_at": format_number(best.steps_completed if best else None),
        "run": str(trial.run_id),
    }


def _common_values(record: ExperimentRecord | TrialRecord) -> dict[str, str]:
    return {
        "state": record.state.value,
        "state_word": state_word(record.state),
        "progress": f"{record.progress:.4f}",
        "progress-text": format_percent(record.progress),
        "took": format_record_time(record),
    }
