"""Filters and sort orders by any value of experiments and trials, as SQL conditions with bound parameters.

A hyperparameter is read from the JSON of the trial. A metric is that of the newest report that has it, which is looked
for in the index of the metrics, among few reports, so that the costs per trial are bounded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Text,
    and_,
    case,
    exists,
    false,
    func,
    literal,
    not_,
    null,
    or_,
    select,
    type_coerce,
)

from det_core.errors import FilterError
from det_core.interfaces.records import LONGEST_NAME, STATE_WORDS, State, require_writable
from det_core.json_values import dump_json_value, iter_leaves
from det_core.similar_names import suggest_name
from det_core.tracking._filter_language import Comparison, Condition, Every, Not, Some, parse_filter, refuse
from det_core.tracking._metric_names import read_metric_names
from det_core.tracking._rows import contains_text
from det_core.tracking._schema import code_versions, experiments, live, metrics, scored, trials

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection

    from det_core.tracking._database import Database

_MOST_LEVELS = 20
"""Maximum number of dots in the name of a hyperparameter."""
_RECENT = 10
"""Number of newest reports of a trial among which a metric is looked for."""
_MOST_NAMES, _LONGEST_SHOWN = 40, 60
"""Maximum number of names in an error, and of the characters of each."""
_SAMPLED = 5
"""Number of newest trials whose names an error has."""
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
_STATE_NAMES = {state.value: (state.value, STATE_WORDS[state].upper()) for state in State}
"""States with their names, of which the last one is the word that pages show."""


@dataclass(frozen=True)
class _Value:
    """SQL expressions for a value, which are NULL if the record has none of that type."""

    number: ColumnElement[Any] | None = None
    text: ColumnElement[Any] | None = None
    of_trial: bool = False
    """Whether each trial of an experiment has one."""
    is_list: bool = False
    """Whether the text is a list in JSON, whose items are compared."""
    is_state: bool = False


def _number(column: ColumnElement[Any]) -> Callable[[Database], _Value]:
    return lambda database: _Value(number=column)


def _text(column: ColumnElement[Any], **kind: Any) -> Callable[[Database], _Value]:
    return lambda database: _Value(text=type_coerce(column, Text), **kind)


def _from_config(name: str) -> Callable[[Database], _Value]:
    return lambda database: _Value(text=database.json_text(experiments.c.config, [name]))


def _validated(order: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return an SQL expression for the searcher's metric of a trial's first validation in this order."""
    values = select(metrics.c.searcher_metric).where(metrics.c.trial_id == trials.c.id, scored)
    return values.order_by(order, metrics.c.id).limit(1).correlate(trials).scalar_subquery()


_LEAST, _GREATEST = _validated(metrics.c.searcher_metric), _validated(metrics.c.searcher_metric.desc())
_NEWEST = _validated(metrics.c.steps_completed.desc())


_COMMIT = (
    select(code_versions.c.commit)
    .where(code_versions.c.experiment_id == experiments.c.id)
    .correlate(experiments)
    .scalar_subquery()
)


def _best(database: Database) -> _Value:
    smaller_is_better = database.json_text(experiments.c.config, ["searcher", "smaller_is_better"])
    config = select(smaller_is_better).where(experiments.c.id == trials.c.experiment_id).correlate(trials)
    best = case((config.scalar_subquery() == "false", _GREATEST), else_=_LEAST)
    return _Value(number=best, of_trial=True)


_OF_RESULTS: Mapping[str, Callable[[Database], _Value]] = {
    "best": _best,
    "latest": lambda database: _Value(number=_NEWEST, of_trial=True),
    "batches": lambda database: _Value(number=trials.c.steps_completed, of_trial=True),
    "restarts": lambda database: _Value(number=trials.c.restarts, of_trial=True),
}
_OF_TRIALS: Mapping[str, Callable[[Database], _Value]] = {
    **_OF_RESULTS,
    "id": _number(trials.c.id),
    "state": _text(trials.c.state, is_state=True),
    "progress": _number(trials.c.progress),
}
_OF_EXPERIMENTS: Mapping[str, Callable[[Database], _Value]] = {
    **_OF_RESULTS,
    "id": _number(experiments.c.id),
    "state": _text(experiments.c.state, is_state=True),
    "progress": _number(experiments.c.progress),
    "name": _text(experiments.c.name),
    "description": _text(experiments.c.description),
    "owner": _text(experiments.c.owner),
    "label": _text(experiments.c.labels, is_list=True),
    "project": _from_config("project"),
    "workspace": _from_config("workspace"),
    "commit": lambda database: _Value(text=_COMMIT),
    "started": lambda database: _Value(number=database.seconds(experiments.c.start_time)),
}


class TrialValues:
    """Values of trials, by the names that filters have for them.

    Args:
        database: the database.
    """

    _fields = _OF_TRIALS

    def __init__(self, database: Database) -> None:
        self._database = database

    def matches(self, text: str) -> ColumnElement[bool]:
        """Return an SQL condition for the rows that a filter selects.

        Raises:
            FilterError: the filter is malformed.
        """
        require_writable(text)
        return self._condition(parse_filter(text))

    def order(self, name: str, *, reverse: bool) -> list[ColumnElement[Any]]:
        """Return SQL expressions that sort by a value, the least first: numbers, then texts, then rows without it.

        Args:
            name: name of the value.
            reverse: whether the greatest value comes first.
        """
        value = self.find(name)
        present = [one for one in (value.number, value.text) if one is not None]
        return [(one.desc() if reverse else one.asc()).nulls_last() for one in present]

    def require_value(self, connection: Connection, name: str, of_list: ColumnElement[bool]) -> None:
        """Check that a value by which a list is sorted exists.

        Args:
            connection: an open transaction.
            name: name of the value.
            of_list: SQL condition for the trials of the list. If there are none, all names are accepted.

        Raises:
            FilterError: no trial has the value. The message has names that exist.
        """
        if name in self._fields:
            return
        value, listed = self.find(name), select(trials.c.id).where(of_list)
        present = or_(*(one.is_not(None) for one in (value.number, value.text) if one is not None))
        if connection.scalar(select(or_(exists(listed.where(present)), not_(exists(listed))))):
            return
        names = list(dict.fromkeys([*self._fields, *_names_of_trials(connection, of_list)]))
        if name.removeprefix("hp.") in names:  # such as a hyperparameter that is NaN
            return
        shown = ", ".join(one[:_LONGEST_SHOWN] for one in names[:_MOST_NAMES])
        raise FilterError(f"no trial has {name!r:.100}; expected one of {shown}{suggest_name(name, names)}")

    def columns(self, name: str) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
        """Return SQL expressions for a value as a number and as a text, of which at most one is not NULL."""
        value = self.find(name)
        return tuple(null() if one is None else one for one in (value.number, value.text))  # type: ignore[return-value]

    def find(self, name: str) -> _Value:
        """Return the value with a name: a field of the record, a hyperparameter, or a metric.

        Raises:
            FilterError: the name is too long, or has too many parts.
        """
        require_writable(name)
        if len(name) > LONGEST_NAME or name.count(".") > _MOST_LEVELS:
            raise FilterError(
                f"the name {name!r:.100} is too long; "
                f"expected at most {LONGEST_NAME} characters and {_MOST_LEVELS} dots"
            )
        if name in self._fields:
            return self._fields[name](self._database)
        column, of_hyperparameter = trials.c.hparams, name.removeprefix("hp.")
        paths = list(dict.fromkeys([tuple(of_hyperparameter.split(".")), (of_hyperparameter,)]))
        numbers = [self._database.json_number(column, path) for path in paths]
        texts = [self._database.json_text(column, path) for path in paths]
        if of_hyperparameter == name:
            numbers += self._metrics(name)
        return _Value(_first(numbers), _first(texts), of_trial=True)

    def _metrics(self, name: str) -> list[ColumnElement[Any]]:
        """Return SQL expressions for the newest value of a metric, of which the first one that is not NULL counts."""
        group, _, metric = name.partition(".")
        validated, number = metrics.alias("validated"), self._database.number
        newest = select(metrics.c.id).where(metrics.c.trial_id == trials.c.id, scored).correlate(trials)
        of_newest = newest.order_by(metrics.c.steps_completed.desc()).limit(1).scalar_subquery()
        recent = (
            select(metrics.c.metrics, metrics.c.group, metrics.c.steps_completed)
            .where(metrics.c.trial_id == trials.c.id, live)
            .order_by(metrics.c.steps_completed.desc())
            .limit(_RECENT)
            .correlate(trials)
            .subquery()
        )
        newest_first = (recent.c.group.desc(), recent.c.steps_completed.desc())  # validation before training
        found: list[ColumnElement[Any]] = []
        for groups, named in (([group], metric), (["validation", "training"], name)):
            if not named:
                continue
            if "validation" in groups:
                found.append(select(number(validated, named)).where(validated.c.id == of_newest).scalar_subquery())
            of_groups = (recent.c.group.in_(groups), number(recent, named).is_not(None))
            found.append(
                select(number(recent, named)).where(*of_groups).order_by(*newest_first).limit(1).scalar_subquery()
            )
        return found

    def _condition(self, condition: Condition) -> ColumnElement[bool]:
        if isinstance(condition, Every):
            return and_(*map(self._condition, condition.parts))
        if isinstance(condition, Some):
            return or_(*map(self._condition, condition.parts))
        if isinstance(condition, Not):
            return not_(self._condition(condition.part))
        return func.coalesce(_compare(self.find(condition.name), condition), false())


class ExperimentValues(TrialValues):
    """Values of experiments and of their trials.

    A filter selects an experiment if it holds for the experiment together with one of its trials.

    Args:
        database: the database.
    """

    _fields = _OF_EXPERIMENTS

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._uses_trials = False

    def matches(self, text: str) -> ColumnElement[bool]:
        condition = super().matches(text)
        if not self._uses_trials:
            return condition
        one_row = select(literal(1).label("one")).subquery()  # also for an experiment without trials
        with_trials = one_row.outerjoin(trials, trials.c.experiment_id == experiments.c.id)
        return exists(select(literal(1)).select_from(with_trials).where(condition).correlate(experiments))

    def order(self, name: str, *, reverse: bool) -> list[ColumnElement[Any]]:
        value, extreme = self.find(name), func.max if reverse else func.min
        if not value.of_trial:
            return super().order(name, reverse=reverse)
        of_experiment = trials.c.experiment_id == experiments.c.id
        extremes: Sequence[Any] = [
            select(extreme(one)).where(of_experiment).correlate(experiments).scalar_subquery()
            for one in (value.number, value.text)
            if one is not None
        ]
        return [(one.desc() if reverse else one.asc()).nulls_last() for one in extremes]

    def find(self, name: str) -> _Value:
        value = super().find(name)
        self._uses_trials |= value.of_trial
        return value


def _names_of_trials(connection: Connection, of_list: ColumnElement[bool]) -> list[str]:
    """Return names of the hyperparameters and metrics of some trials of a list."""
    newest = select(trials.c.id, trials.c.hparams).where(of_list).order_by(trials.c.id.desc()).limit(_SAMPLED)
    rows = connection.execute(newest).all()
    metrics_of = read_metric_names(connection, [row.id for row in rows])
    return [
        *(name for row in rows for name, _ in islice(iter_leaves(row.hparams), _MOST_NAMES)),
        *(
            name if group in ("validation", "training") else f"{group}.{name}"
            for group, names in metrics_of.items()
            for name in names[:_MOST_NAMES]
        ),
    ]


def limited(database: Database, connection: Connection, values: str) -> AbstractContextManager[None]:
    """Return a context manager that limits the time of a list, if filters or sort orders name values."""
    return database.limit_time(connection) if values else nullcontext()


def _first(values: Sequence[ColumnElement[Any]]) -> ColumnElement[Any]:
    return func.coalesce(*values) if len(values) > 1 else values[0]


def _compare(value: _Value, comparison: Comparison) -> ColumnElement[bool]:
    text, kind, position = comparison.constant, comparison.operator, comparison.position
    if kind != "~" and comparison.number is not None and value.number is not None:
        return _OPERATORS[kind](value.number, comparison.number)  # type: ignore[no-any-return]
    if value.text is None:
        refuse(position, text, f"a number after {kind if kind != '~' else '='}, because {comparison.name} is one")
    if value.is_state:
        return _compare_state(value.text, comparison)
    if kind == "~":
        return contains_text(value.text, text)
    if value.is_list:
        if kind not in ("=", "!="):
            refuse(position, text, f"=, != or ~ before it, because {comparison.name} has several values")
        return has_item(value.text, text) if kind == "=" else not_(has_item(value.text, text))
    return _OPERATORS[kind](value.text, text)  # type: ignore[no-any-return]


def _compare_state(state: ColumnElement[Any], comparison: Comparison) -> ColumnElement[bool]:
    kind, wanted = comparison.operator, comparison.constant.upper()
    if kind not in ("=", "!=", "~"):
        refuse(comparison.position, comparison.constant, f"=, != or ~ before it, because {comparison.name} is a word")
    named = [value for value, names in _STATE_NAMES.items() if wanted in (" ".join(names) if kind == "~" else names)]
    if not named and kind != "~":
        known = (name if word == name else f"{name} ({word.lower()})" for name, word in _STATE_NAMES.values())
        refuse(comparison.position, comparison.constant, f"one of {', '.join(known)}")
    return state.not_in(named) if kind == "!=" else state.in_(named)


def has_item(listed: ColumnElement[str], item: str) -> ColumnElement[bool]:
    """Return an SQL condition that a JSON list of texts contains an item.

    It matches whole items only, because quotes inside an item are preceded by a backslash.
    """
    return or_(*(func.replace(listed, before + dump_json_value(item), "") != listed for before in "[,"))
