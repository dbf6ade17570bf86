"""Names of the metrics of trials, which are read from some of their reports."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from sqlalchemy import select

from det_core.tracking._rows import StoreMixin, get_trial
from det_core.tracking._schema import live, metrics

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_TRIALS = 20
"""Maximum number of trials whose reports are read."""
_REPORTS = 400
"""Number of first reports of all trials that are read at most, and of last reports."""

_c = metrics.c


class MetricNamesMixin(StoreMixin):
    """Methods of the tracking store that list metrics."""

    def metric_names(self, trial_ids: Collection[int]) -> dict[str, list[str]]:
        chosen = _spread(list(trial_ids))
        found: dict[str, set[str]] = defaultdict(set)
        with self._database.read() as connection:
            for trial_id in chosen:
                get_trial(connection, trial_id)
                of_trial = select(_c.group, _c.metrics).where(_c.trial_id == trial_id, live)
                of_trial = of_trial.limit(_REPORTS // len(chosen))
                for order in (_c.steps_completed.asc(), _c.steps_completed.desc()):
                    for group, values in connection.execute(of_trial.order_by(order)):
                        found[group].update(name for name, value in values.items() if _is_number(value))
        return {group: sorted(names) for group, names in sorted(found.items()) if names}


def _spread(trial_ids: Sequence[int]) -> Sequence[int]:
    """Return the trials, or a limited number of them from the first to the last, evenly spread."""
    if len(trial_ids) <= _TRIALS:
        return trial_ids
    return [trial_ids[number * (len(trial_ids) - 1) // (_TRIALS - 1)] for number in range(_TRIALS)]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
