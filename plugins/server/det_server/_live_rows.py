"""Rows of experiments and trials, as texts that open pages show."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from det_core.errors import RecordNotFound
from det_core.interfaces.records import ExperimentRecord, TrialRecord, searcher_metric
from det_server._rendering import format_metric, format_number, format_percent, format_record_time, state_word

if TYPE_CHECKING:
    from det_core.interfaces.tracking import TrackingStore

RowValues = Mapping[str, str]
"""Names of values mapped to their texts."""
_MOST_SCORES = 10_000
"""Maximum number of trials whose best values are kept."""


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

    Best values are read again only for trials with new reports, because each costs a query.

    Args:
        store: the tracking store.
    """

    def __init__(self, store: TrackingStore) -> None:
        self._store = store
        self._best: dict[int, tuple[float, int] | None] = {}

    @staticmethod
    def keys(topics: Topics) -> Iterator[str]:
        """Yield the keys of the rows of a page."""
        yield from (f"experiment/{identity}" for identity in topics.experiments)
        yield from (f"trial/{identity}" for identity in topics.trials)
        if topics.newest:
            yield "experiments"

    def read(self, pages: Iterable[Topics], scored_again: Collection[int] = ()) -> dict[str, RowValues]:
        """Return the rows of pages by key.

        Args:
            pages: subjects of the pages.
            scored_again: trials with new reports.
        """
        pages = list(pages)
        experiments = frozenset[int]().union(*(one.experiments for one in pages))
        trials = frozenset[int]().union(*(one.trials for one in pages))
        rows: dict[str, RowValues] = {}
        if experiments:
            rows |= self._experiment_rows(experiments)
        if trials:
            rows |= self._trial_rows(trials, scored_again)
        if any(one.newest for one in pages):
            newest = self._store.experiments(limit=1)
            rows["experiments"] = {"newest": str(newest[0].id if newest else 0)}
        return rows

    def _experiment_rows(self, ids: Collection[int]) -> dict[str, RowValues]:
        experiments = self._store.experiments_by_id(ids)
        summaries = self._store.experiment_summaries([one.id for one in experiments])
        return {
            f"experiment/{one.id}": {
                **_common_values(one),
                "best": format_metric(summary.best.value if summary.best else None),
                "trials": str(summary.trials),
                "checkpoints": str(summary.checkpoints),
            }
            for one in experiments
            for summary in [summaries[one.id]]
        }

    def _trial_rows(self, ids: Collection[int], scored_again: Collection[int]) -> dict[str, RowValues]:
        trials = existing_trials(self._store, ids)
        self._read_scores(trials, scored_again)
        return {f"trial/{trial.id}": self._trial_values(trial) for trial in trials}

    def _trial_values(self, trial: TrialRecord) -> RowValues:
        value, step = self._best.get(trial.id) or (None, None)
        return {
            **_common_values(trial),
            "batches": format_number(trial.steps_completed),
            "best": format_metric(value),
            "best_at": format_number(step),
            "run": str(trial.run_id),
        }

    def _read_scores(self, trials: Iterable[TrialRecord], scored_again: Collection[int]) -> None:
        if len(self._best) > _MOST_SCORES:
            self._best.clear()
        unknown = [trial for trial in trials if trial.id not in self._best or trial.id in scored_again]
        owners = {one.id: one for one in self._store.experiments_by_id({trial.experiment_id for trial in unknown})}
        for trial in unknown:
            metric, smaller_is_better = searcher_metric(owners[trial.experiment_id].config)
            best = self._store.best_validation(
                trial.experiment_id, metric, smaller_is_better=smaller_is_better, trial_id=trial.id
            )
            self._best[trial.id] = (best[0], best[2]) if best else None


def existing_trials(store: TrackingStore, ids: Iterable[int]) -> list[TrialRecord]:
    """Return those of the trials that exist, in the requested order."""
    ids = list(ids)
    try:
        return store.trials_by_id(ids)
    except RecordNotFound:
        return [trial for one in ids for trial in _trial_if_any(store, one)]


def _trial_if_any(store: TrackingStore, trial_id: int) -> list[TrialRecord]:
    try:
        return [store.trial(trial_id)]
    except RecordNotFound:
        return []


def _common_values(record: ExperimentRecord | TrialRecord) -> dict[str, str]:
    return {
        "state": record.state.value,
        "state_word": state_word(record.state),
        "progress": f"{record.progress:.4f}",
        "progress-text": format_percent(record.progress),
        "took": format_record_time(record),
    }
