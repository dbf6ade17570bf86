"""Names of the metrics of trials, which are read from some of their reports."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, select, type_coerce, union_all

from det_core.tracking._column_types import load_metrics
from det_core.tracking._rows import StoreMixin, fetch_large_rows, get_trial
from det_core.tracking._schema import live, metrics, trials

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import CompoundSelect, Connection, Row

_TRIALS = 20
"""Maximum number of trials whose reports are read."""
_REPORTS = 400
"""Number of first reports of all trials that are read at most, and of last reports."""
_CHARACTERS = 8 << 20
"""Number of characters of reports after which no more are read, because one may have thousands of values."""
_NAMES = 50_000
"""Number of names of metrics after which no more are looked for, because every report may have others."""

_c = metrics.c


class MetricNamesMixin(StoreMixin):
    """Methods of the tracking store that list metrics."""

    def metric_names(self, trial_ids: Collection[int]) -> dict[str, list[str]]:
        if not trial_ids:
            return {}
        chosen = _spread(list(trial_ids))
        with self._database.read() as connection:
            known = set(connection.scalars(select(trials.c.id).where(trials.c.id.in_(chosen))))
            for unknown in (trial_id for trial_id in chosen if trial_id not in known):
                get_trial(connection, unknown)  # raises
            return read_metric_names(connection, chosen)


def read_metric_names(connection: Connection, trial_ids: Sequence[int]) -> dict[str, list[str]]:
    """Return the names of the metrics of a few trials by their groups."""
    rows, _ = fetch_large_rows(connection, _reports(trial_ids), _count_characters, _CHARACTERS)
    found = defaultdict[str, set[str]](set)
    for row in rows:  # one at a time, so that other threads run in between
        found[row.group].update(name for name, value in load_metrics(row.metrics).items() if _is_number(value))
        if sum(map(len, found.values())) > _NAMES:
            break
    return {group: sorted(names) for group, names in sorted(found.items()) if names}


def _count_characters(row: Row[Any]) -> int:
    return len(row.group) + len(row.metrics)


def _reports(trial_ids: Sequence[int]) -> CompoundSelect[Any]:
    """Select the first and the last reports of trials, with metrics as text."""
    parts = [
        select(_c.group, type_coerce(_c.metrics, Text).label("metrics"))
        .where(_c.trial_id == trial_id, live)
        .order_by(order)
        .limit(_REPORTS // len(trial_ids))
        .subquery()
        for trial_id in trial_ids
        for order in (_c.steps_completed.asc(), _c.steps_completed.desc())
    ]
    return union_all(*(select(part) for part in parts))


def _spread(trial_ids: Sequence[int]) -> Sequence[int]:
    """Return the trials, or a limited number of them from the first to the last, evenly spread."""
    if len(trial_ids) <= _TRIALS:
        return trial_ids
    return [trial_ids[number * (len(trial_ids) - 1) // (_TRIALS - 1)] for number in range(_TRIALS)]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
