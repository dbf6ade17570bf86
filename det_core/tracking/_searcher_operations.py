"""Current operation of a trial, which the search method assigns."""

from __future__ import annotations

from sqlalchemy import Connection, select

from det_core.errors import TrackingError
from det_core.interfaces.records import MAX_STEPS, SearcherOperationRecord
from det_core.tracking._rows import StoreMixin, fence_run, fetch_only_row, lock_trial, update_trial
from det_core.tracking._schema import trials

_columns = (trials.c.searcher_length, trials.c.searcher_completed, trials.c.searcher_metric)


class SearcherOperationsMixin(StoreMixin):
    """Methods of the tracking store for searcher operations."""

    def set_searcher_operation(self, trial_id: int, length: int, *, lease: str = "") -> None:
        if not 0 < length <= MAX_STEPS:
            raise ValueError(f"the searcher operation has length {length}; expected 1 to {MAX_STEPS}")
        with self._database.write() as connection:
            lock_trial(connection, trial_id, lease=lease)
            update_trial(connection, trial_id, searcher_length=length)

    def searcher_operation(self, trial_id: int) -> SearcherOperationRecord | None:
        with self._database.read() as connection:
            return fetch_operation(connection, trial_id)

    def complete_searcher_operation(self, trial_id: int, run_id: int, length: int, metric: float) -> None:
        with self._database.write() as connection:
            fence_run(connection, trial_id, run_id)
            current = fetch_operation(connection, trial_id)
            if current is None or current.length != length or current.completed:
                raise TrackingError(f"trial {trial_id} cannot complete length {length}: {_describe_operation(current)}")
            update_trial(connection, trial_id, searcher_completed=length, searcher_metric=float(metric))


def fetch_operation(connection: Connection, trial_id: int) -> SearcherOperationRecord | None:
    """Return the current operation of a trial, or None if it has none."""
    row = fetch_only_row(connection, select(*_columns).where(trials.c.id == trial_id), f"trial {trial_id}")
    if row.searcher_length is None:
        return None
    done = row.searcher_completed == row.searcher_length
    return SearcherOperationRecord(
        length=row.searcher_length, completed=done, metric=row.searcher_metric if done else None
    )


def _describe_operation(current: SearcherOperationRecord | None) -> str:
    if current is None:
        return "the searcher has assigned no operation to it"
    return f"the searcher's operation has length {current.length}" + (" and is completed" if current.completed else "")
