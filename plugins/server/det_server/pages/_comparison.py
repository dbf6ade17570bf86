"""Values of the trials that a comparison shows, for its page and its report."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from det_core.errors import CallTooLarge
from det_core.interfaces.records import (
    LONGEST_BRIEF,
    MAX_STEPS,
    ExperimentRecord,
    MetricValues,
    Run,
    Shortened,
    State,
    TrialOrder,
    TrialRecord,
    searcher_metric,
)
from det_core.json_values import name_non_finite
from det_core.metric_directions import known_direction
from det_server._live_rows import RowValues, results_of_trials, trial_values
from det_server._rendering import format_metric, format_number
from det_server.pages._hyperparameters import listed_values, name_left_out
from det_server.pages._origins import origins_of
from det_server.pages._outcomes import outcome_word
from det_server.pages._runs import reason_of_failure
from det_server.pages._series import DrawnSeries, find_series
from det_server.pages._store_values import metric_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from det_core.interfaces.tracking import TrackingStore

MOST_TRIALS = 100
"""Maximum number of trials that are compared."""
MOST_METRICS = 20
"""Maximum number of metrics whose values are shown at once."""
MOST_ROWS = 1000
"""Maximum number of hyperparameters, and of keys of configs."""
_LONGEST_VALUE = 200
_MOST_NAMED = 10
"""Maximum number of metrics that a message names."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Trials and values that a comparison shows.

    Args:
        trials: ids of trials.
        experiments: ids of experiments, whose best trials are added.
        best: number of trials of each of these experiments.
        step: number of batches at which values are shown besides the final and the best ones, or None.
        series: key of the metric that the chart draws, or "".
        names: part of the names of the metrics to show, or "" for the first ones.
    """

    trials: Sequence[int] = ()
    experiments: Sequence[int] = ()
    best: int = 1
    step: int | None = None
    series: str = ""
    names: str = ""


@dataclass(frozen=True)
class Cell:
    """Value of one trial.

    Args:
        text: the value.
        note: what is unusual about it.
        is_best: whether it is the best of its row.
    """

    text: str
    note: str = ""
    is_best: bool = False


@dataclass(frozen=True)
class Row:
    """Values of all trials.

    Args:
        name: name of the values.
        note: what they are.
        cells: the values, in the order of the trials or experiments.
        differs: whether they are not all the same.
    """

    name: str
    note: str
    cells: Sequence[Cell]
    differs: bool


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Values and differences of trials.

    Args:
        trials: the trials.
        experiments: their experiments by id, in the order of the trials.
        messages: what was asked for and is not shown.
        live: texts of trials that change, by id.
        outcomes: how each trial ended, and why, by id.
        metrics: rows of values of metrics.
        hyperparameters: rows of hyperparameters, those that differ first.
        config: rows of the configs of the experiments, without hyperparameters. Only those that differ.
        origins: rows of the commits and machines of the trials.
        packages: rows of the packages whose versions differ.
        same_config: keys and values that all configs have in common.
        drawn: metric that the chart draws.
    """

    trials: Sequence[TrialRecord]
    experiments: Mapping[int, ExperimentRecord]
    messages: Sequence[str]
    live: Mapping[int, RowValues]
    outcomes: Mapping[int, tuple[str, str]]
    metrics: Sequence[Row]
    hyperparameters: Sequence[Row]
    config: Sequence[Row]
    origins: Sequence[Row]
    packages: Sequence[Row]
    same_config: Sequence[tuple[str, str]]
    drawn: DrawnSeries


def read_comparison(store: TrackingStore, choice: Choice, latest_runs: Callable[[int], list[Run]]) -> Comparison:
    """Return what a comparison shows.

    Args:
        store: the tracking store.
        choice: trials and values to show.
        latest_runs: function that returns the newest run of a trial, given its id.
    """
    trials, experiments, messages = _chosen_trials(store, choice)
    ids = [trial.id for trial in trials]
    drawn = find_series(store, ids, choice.series, metric_of(experiments[trials[0].experiment_id]) if trials else "")
    metrics, more = _metric_rows(store, trials, experiments, drawn, choice)
    config, same_config = _config_rows(list(experiments.values()))
    origins = list(origins_of(store, trials).values())
    return Comparison(
        trials=trials,
        experiments=experiments,
        messages=[*messages, *more, *filter(None, (name_left_out(trials), _name_shortened(experiments.values())))],
        live=trial_values(store, results_of_trials(store, trials)),
        outcomes={trial.id: _outcome(trial, experiments[trial.experiment_id], latest_runs) for trial in trials},
        metrics=metrics,
        hyperparameters=_hyperparameter_rows(trials),
        config=config,
        origins=_rows([{**one.code, **one.machine} for one in origins]),
        packages=[row for row in _rows([one.packages for one in origins]) if row.differs],
        same_config=same_config,
        drawn=drawn,
    )


def _chosen_trials(
    store: TrackingStore, choice: Choice
) -> tuple[list[TrialRecord], dict[int, ExperimentRecord], list[str]]:
    """Return the trials that are compared, their experiments by id in their order, and what is missing."""
    known = [one.id for one in store.experiments_by_id(choice.experiments[:MOST_TRIALS], brief=True)]
    messages = _missing("experiment", choice.experiments[:MOST_TRIALS], known)
    if len(choice.experiments) > MOST_TRIALS:
        messages.append(f"Only the first {MOST_TRIALS} experiments are looked at.")
    named = [*choice.trials]
    for experiment_id in (one for one in choice.experiments if one in known):
        if len(named) <= MOST_TRIALS:
            most = min(choice.best, MOST_TRIALS)
            best = store.trial_results(experiment_id, order=TrialOrder.BEST, limit=most, brief=True)
            named += [result.trial.id for result in best]
    named = list(dict.fromkeys(named))
    wanted = named[:MOST_TRIALS]
    found = store.trials_by_id(wanted, brief=True)
    by_id = {one.id: one for one in store.experiments_by_id({one.experiment_id for one in found}, brief=True)}
    trials = [one for one in found if one.experiment_id in by_id]  # others were deleted since they were read
    messages += _missing("trial", wanted, [trial.id for trial in trials])
    if left_out := len(named) - len(wanted):
        messages.append(f"Only the first {MOST_TRIALS} trials are shown, and {left_out} are left out.")
    return trials, {trial.experiment_id: by_id[trial.experiment_id] for trial in trials}, messages


def _missing(noun: str, wanted: Iterable[int], known: Collection[int]) -> list[str]:
    missing = ", ".join(str(one) for one in wanted if one not in known)
    return [f"There is no {noun} {missing}."] if missing else []


def _outcome(
    trial: TrialRecord, experiment: ExperimentRecord, latest_runs: Callable[[int], list[Run]]
) -> tuple[str, str]:
    """Return how a trial ended, and why if it did not complete."""
    runs = latest_runs(trial.id) if trial.state in (State.ERROR, State.COMPLETED) else []
    return outcome_word(trial, experiment.config, runs), reason_of_failure(trial, runs)


def _metric_rows(
    store: TrackingStore,
    trials: Sequence[TrialRecord],
    experiments: Mapping[int, ExperimentRecord],
    drawn: DrawnSeries,
    choice: Choice,
) -> tuple[list[Row], list[str]]:
    """Return the rows of metrics, and what is left out."""
    keys = [key for key in drawn.choices if choice.names.lower() in key.lower()]
    searched = {f"validation.{metric_of(one)}" for one in experiments.values()}
    keys.sort(key=lambda key: key not in searched)
    shown, ids = keys[:MOST_METRICS], [trial.id for trial in trials]
    messages = [] if shown or not choice.names else [f"No metric has {choice.names!r} in its name."]
    if choice.series and drawn.choices and choice.series != drawn.key:
        known = ", ".join(drawn.choices[:_MOST_NAMED])
        messages.append(f"There are no curves of {choice.series!r:.200}; expected one of {known}.")
    if len(keys) > MOST_METRICS:
        messages.append(f"The table has {MOST_METRICS} of {len(keys)} metrics. Type a part of the names of others.")
    try:
        final = _values(store, ids, shown)
        at_step = {} if choice.step is None else _values(store, ids, shown, choice.step)
    except CallTooLarge:
        return [], [*messages, "The reports of these trials are too many to read final and best values of metrics."]
    directions = {key: _direction(key, experiments.values()) for key in shown}
    rows = [
        row
        for key in shown
        for row in _rows_of_metric(key, directions[key], final[key], at_step.get(key), ids, choice.step)
    ]
    return rows, messages


_ByTrial = Mapping[int, MetricValues]


def _values(
    store: TrackingStore, ids: Sequence[int], keys: Sequence[str], until: int = MAX_STEPS
) -> dict[str, _ByTrial]:
    """Return the values of metrics by key and trial."""
    found: dict[str, dict[int, MetricValues]] = {key: {} for key in keys}
    for group in dict.fromkeys(key.partition(".")[0] for key in keys):
        names = [name for of_group, _, name in (key.partition(".") for key in keys) if of_group == group]
        for trial_id, values in store.metric_values(ids, names, group=group, until=until).items():
            for name, value in values.items():
                found[f"{group}.{name}"][trial_id] = value
    return dict(found)


def _direction(key: str, experiments: Iterable[ExperimentRecord]) -> bool | None:
    """Return whether smaller values of a metric are better, or None if that is unknown."""
    group, _, name = key.partition(".")
    searched = [searcher_metric(one.config) for one in experiments]
    stated = {smaller for metric, smaller in searched if group == "validation" and metric == name}
    if not stated:
        return known_direction(name)
    return stated.pop() if len(stated) == 1 else None


def _rows_of_metric(
    key: str, smaller: bool | None, final: _ByTrial, at_step: _ByTrial | None, ids: Sequence[int], step: int | None
) -> list[Row]:
    """Return a row with final values, one with the best or two with the extremes, and one with those at a step."""
    last = {value.steps_completed for value in final.values()}
    notes = {one: f"at {format_number(value.steps_completed)}" for one, value in final.items() if len(last) > 1}
    rows = [_metric_row(key, "final", {one: value.latest for one, value in final.items()}, notes, ids, smaller)]
    least, greatest = ({one: getattr(value, end) for one, value in final.items()} for end in ("least", "greatest"))
    if smaller is not False:
        rows.append(_metric_row(key, "best" if smaller else "least", least, {}, ids, smaller))
    if not smaller:
        word = "best" if smaller is False else "greatest"
        rows.append(_metric_row(key, word, greatest, {}, ids, smaller))
    if at_step is not None:
        notes = {
            one: f"at {format_number(value.steps_completed)}"
            for one, value in at_step.items()
            if value.steps_completed != step
        }
        values = {one: value.latest for one, value in at_step.items()}
        rows.append(
            _metric_row(key, f"at batch {format_number(step)}, or the last before", values, notes, ids, smaller)
        )
    return rows


def _metric_row(
    key: str,
    note: str,
    values: Mapping[int, float | None],
    notes: Mapping[int, str],
    ids: Sequence[int],
    smaller: bool | None,
) -> Row:
    finite = [value for value in values.values() if value is not None and math.isfinite(value)]
    best = None if smaller is None or len(set(finite)) < 2 else (min if smaller else max)(finite)
    cells = [
        Cell(_format_value(values.get(one)), notes.get(one, ""), best is not None and values.get(one) == best)
        for one in ids
    ]
    return Row(key, note, cells, _differ([values.get(one) for one in ids]))


def _format_value(value: float | None) -> str:
    return format_metric(value) if value is None or math.isfinite(value) else str(name_non_finite(value))


def _hyperparameter_rows(trials: Sequence[TrialRecord]) -> list[Row]:
    """Return the values of each hyperparameter, those that differ first."""
    return sorted(_rows([listed_values(trial.hparams) for trial in trials]), key=lambda row: not row.differs)


def _config_rows(experiments: Sequence[ExperimentRecord]) -> tuple[list[Row], list[tuple[str, str]]]:
    """Return the rows of the keys that differ between configs, and the keys that do not with their values."""
    configs = ({name: value for name, value in one.config.items() if name != "hyperparameters"} for one in experiments)
    rows = _rows(list(map(listed_values, configs)))
    same = [(row.name, row.cells[0].text) for row in rows if not row.differs]
    return [row for row in rows if row.differs], same


def _name_shortened(experiments: Iterable[ExperimentRecord]) -> str:
    """Return a sentence about the experiments whose configs are too large to compare, or ""."""
    ids = ", ".join(str(one.id) for one in experiments if isinstance(one.config, Shortened))
    return f"Configs of more than {LONGEST_BRIEF >> 10} KiB are not compared: experiments {ids}." if ids else ""


def _rows(each: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return a row for each name in several mappings."""
    names = dict.fromkeys(name for values in each for name in values)
    return [_row(name, [values.get(name) for values in each]) for name in islice(names, MOST_ROWS)]


def _row(name: str, values: Sequence[Any]) -> Row:
    cells = [Cell(format_number(value)[:_LONGEST_VALUE]) for value in values]
    return Row(name[:_LONGEST_VALUE], "", cells, _differ(values))


def _differ(values: Iterable[object]) -> bool:
    return len(set(map(repr, values))) > 1
