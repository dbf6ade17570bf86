"""Trials of a search with their hyperparameters and the values of a metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request

from det_core.interfaces.records import ExperimentRecord, TrialOrder, TrialRecord, TrialResult
from det_server._site import site_of
from det_server.pages._hyperparameters import hyperparameter_columns, listed_values
from det_server.pages._series import DrawnSeries, find_series
from det_server.pages._store_values import metric_of, store_of

MOST_TRIALS = 2000
"""Maximum number of trials of a search that are read, the best ones."""
_LONGEST_TEXT = 200
"""Maximum number of characters of a hyperparameter that is no number."""
_MOST_NAMED = 40
"""Number of trials in which metrics are looked for, the best ones."""


@dataclass(frozen=True)
class SearchedTrials:
    """Trials of a search.

    Args:
        results: the trials, the best first.
        names: names of the hyperparameters that differ.
        metric: name of the values.
        values: best values of the searcher's metric, or newest ones of another metric, by trial.
    """

    results: Sequence[TrialResult]
    names: Sequence[str]
    metric: str
    values: Mapping[int, float]


def read_search(request: Request, experiment: ExperimentRecord) -> SearchedTrials:
    """Return the trials of a search with the values of the metric that the query names."""
    drawn, store = drawn_series(request, experiment), site_of(request).store
    results = store.trial_results(experiment.id, order=TrialOrder.BEST, limit=MOST_TRIALS, brief=True)
    if _is_searched(experiment, drawn):
        values = {one.trial.id: one.best.value for one in results if one.best}
    else:
        newest = store.latest_values([one.trial.id for one in results], drawn.metric, group=drawn.group)
        values = {trial_id: value for trial_id, (_, value) in newest.items()}
    names = list(hyperparameter_columns(result.trial for result in results))
    return SearchedTrials(results, names, name_of_values(experiment, drawn), values)


def drawn_series(request: Request, experiment: ExperimentRecord) -> DrawnSeries:
    """Return the metric that the query names, or that of the searcher."""
    store = store_of(request)
    best = store.trial_results(experiment.id, order=TrialOrder.BEST, limit=_MOST_NAMED, brief=True)
    wanted = request.query_params.get("series", "")
    return find_series(store, [one.trial.id for one in best], wanted, metric_of(experiment))


def name_of_values(experiment: ExperimentRecord, drawn: DrawnSeries) -> str:
    """Return the name of the values of a metric, which says whether they are the newest ones."""
    if _is_searched(experiment, drawn):
        return metric_of(experiment)
    return f"last {drawn.metric}" if drawn.group == "validation" else f"last {drawn.metric}, {drawn.group}"


def plain_values(trial: TrialRecord, names: Sequence[str]) -> list[float | str | None]:
    """Return hyperparameters of a trial as numbers or texts, or None for what JSON lacks."""
    values = listed_values(trial.hparams)
    return [_plain(values.get(name)) for name in names]


def _is_searched(experiment: ExperimentRecord, drawn: DrawnSeries) -> bool:
    """Return whether a metric is the one by which the search ranks trials."""
    return drawn.key == f"validation.{metric_of(experiment)}"


def _plain(value: object) -> float | str | None:
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        return str(value)[:_LONGEST_TEXT]
    return value if value is None or abs(value) < float("inf") else None
