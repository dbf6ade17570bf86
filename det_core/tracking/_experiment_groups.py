"""Groups of experiments by any value, which are counted and paged in the database."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import Double, Text, and_, case, cast, func, null, or_, select, true

from det_core.errors import FilterError
from det_core.interfaces.server_store import MOST_MEMBERS, ExperimentGroup
from det_core.tracking._experiments import ExperimentsMixin, fetch_experiments
from det_core.tracking._filters import ExperimentValues, limited
from det_core.tracking._schema import experiments, trials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Select

    from det_core.interfaces.records import ExperimentRecord, State

_c = experiments.c

_LONGEST_VALUE = 200
"""Maximum number of characters of a text that tell groups apart."""
_ONE, _MIXED, _NONE = range(3)
"""Numbers of values that the trials of a group have, in the order of the groups."""
_Key = tuple[int, float | None, str | None]


class ExperimentGroupsMixin(ExperimentsMixin):
    """Methods of the tracking store for groups of experiments."""

    def experiment_groups(
        self,
        group_by: str,
        *,
        states: Sequence[State] = (),
        name: str | None = None,
        label: str | None = None,
        archived: bool | None = None,
        where: str = "",
        order: str = "id",
        sort_by: str = "",
        reverse: bool = False,
        limit: int,
        offset: int = 0,
    ) -> list[ExperimentGroup]:
        values = ExperimentValues(self._database)
        keyed = _select_keys(values, group_by).where(*self._wanted(states, name, label, archived, where)).cte()
        key = keyed.c.kind, keyed.c.number, keyed.c.text
        in_order = [column.asc().nulls_last() for column in key]
        ids = func.aggregate_strings(cast(keyed.c.id, Text), ",")
        counts = select(*key, func.count(), ids).group_by(*key).order_by(*in_order)
        rows = select(keyed.c.id, *key).join_from(keyed, experiments, experiments.c.id == keyed.c.id)
        page = rows.order_by(*in_order, *self._sorted(order, sort_by, reverse)).limit(limit).offset(offset)
        with self._database.read() as connection, limited(self._database, connection, group_by):
            for used in filter(None, (group_by, sort_by)):
                values.require_value(connection, used, true())
            groups = {tuple(row[:3]): row[3:] for row in connection.execute(counts)}
            key_of = {row.id: tuple(row[1:]) for row in connection.execute(page)}
            shown = fetch_experiments(self._database, connection, key_of, brief=True)
        shown_of = defaultdict[Any, list[Any]](list)
        for experiment_id in filter(shown.__contains__, key_of):
            shown_of[key_of[experiment_id]].append(shown[experiment_id])
        return [_group(each, count, all_ids, shown_of[each]) for each, (count, all_ids) in groups.items()]


def _select_keys(values: ExperimentValues, name: str) -> Select[Any]:
    """Select the ids of experiments with the kind, number and text that tell their groups apart."""
    value = values.find(name)
    if value.is_list:
        raise FilterError(f"experiments may have several values of {name!r}; expected another value to group them by")
    number = cast(null(), Double) if value.number is None else value.number
    text = func.nullif(func.substr(cast(null(), Text) if value.text is None else value.text, 1, _LONGEST_VALUE), "")
    if not value.of_trial:
        return select(_c.id, *_key(number, number, text, text))
    each = select(trials.c.experiment_id, number.label("number"), text.label("text")).subquery()
    extremes = [
        extreme(column).label(f"{which}_{column.name}")
        for column in (each.c.number, each.c.text)
        for which, extreme in (("least", func.min), ("greatest", func.max))
    ]
    of = select(each.c.experiment_id, *extremes).group_by(each.c.experiment_id).subquery()
    columns = of.c.least_number, of.c.greatest_number, of.c.least_text, of.c.greatest_text
    return select(_c.id, *_key(*columns)).outerjoin_from(experiments, of, of.c.experiment_id == _c.id)


def _key(
    least: ColumnElement[Any], greatest: ColumnElement[Any], first: ColumnElement[Any], last: ColumnElement[Any]
) -> Sequence[ColumnElement[Any]]:
    is_mixed = or_(least != greatest, first != last, and_(least.is_not(None), first.is_not(None)))
    kind = case((is_mixed, _MIXED), (and_(least.is_(None), first.is_(None)), _NONE), else_=_ONE)
    return kind.label("kind"), case((kind == _ONE, least)).label("number"), case((kind == _ONE, first)).label("text")


def _group(key: _Key, count: int, all_ids: str, shown: Sequence[ExperimentRecord]) -> ExperimentGroup:
    kind, number, text = key
    return ExperimentGroup(
        value=text if number is None else float(number),
        is_mixed=kind == _MIXED,
        count=count,
        experiments=shown,
        members=list(map(int, all_ids.split(","))) if shown and count <= MOST_MEMBERS else [],
    )
