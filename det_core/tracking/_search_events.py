"""Event log of a search, and the changes that the search makes to trials."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    Double,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    or_,
    select,
    type_coerce,
    update,
)
from sqlalchemy.exc import IntegrityError

from det_core.errors import RecordNotFound, TrackingError
from det_core.interfaces.records import ENDINGS, MAX_ROWS, NewTrial, SearchEvent, State, TrialRecord, TrialUpdate
from det_core.json_values import copy_as_json, load_json_value
from det_core.tracking._column_types import utc_now
from det_core.tracking._rows import (
    RUNNER_ENDED,
    StoreMixin,
    end_runs,
    fetch_records,
    id_list,
    lock_experiment,
    record_columns,
    require_few_rows,
)
from det_core.tracking._schema import runs, search_events, search_snapshots, trials

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_change = update(trials).where(trials.c.id == bindparam("trial"))
_asked_to_end = or_(*(trials.c.state == state for state in ENDINGS))  # in_() does not work with executemany
_keeps_request = and_(_asked_to_end, bindparam("goes_on", type_=Boolean))
_set_state = _change.values(
    state=case((_keeps_request, trials.c.state), else_=bindparam("new_state")),
    ordered=bindparam("new_ordered"),
    end_time=bindparam("new_end_time"),
)
_set_aside = _change.values(request_id=-trials.c.id)
_begin_again = _change.values(restarts=0, interruptions=0)
_goes_back = trials.c.searcher_length > bindparam("new_length")  # an extension is undone
_new_length = bindparam("new_length", type_=Double)
_has_failed = or_(trials.c.state == State.ERROR, trials.c.state == State.CANCELED)
_trained = func.coalesce(trials.c.searcher_length, 0) * case((_has_failed, trials.c.progress), else_=1.0)
"""Length for which a trial has trained before it gets another order."""
_set_length = _change.values(
    searcher_length=bindparam("new_length"),
    total_batches=cast(func.round(trials.c.total_batches * _new_length / trials.c.searcher_length), BigInteger),
    searcher_completed=case((_goes_back, None), else_=trials.c.searcher_completed),  # what followed does not count
    progress=case((_goes_back, 1.0), else_=_trained / _new_length),
)

_STOPPED = "it stopped early, and its search has started over since"
"""Reason for the end of runs whose early exit does not end their trial any more."""


class SearchEventsMixin(StoreMixin):
    """Methods of the tracking store for searches."""

    def record_search(
        self,
        experiment_id: int,
        events: Sequence[SearchEvent],
        trials: Sequence[TrialUpdate],
        *,
        snapshot: Any = None,
        lease: str = "",
    ) -> list[TrialRecord]:
        require_few_rows(len(events), "events")
        if snapshot is not None and not events:
            raise TrackingError("a snapshot of a search follows its events, but the call has none")
        *first, last = [trials[begin : begin + MAX_ROWS] for begin in range(0, len(trials), MAX_ROWS)] or [[]]
        changed = list[TrialRecord]()
        for piece in first:
            with self._database.write() as connection:
                lock_experiment(connection, experiment_id, lease)
                changed += _apply(connection, experiment_id, piece)
        with self._database.write(durable=True) as connection:
            lock_experiment(connection, experiment_id, lease)
            _log(connection, experiment_id, events)
            if snapshot is not None:
                _keep(connection, experiment_id, events[-1].number + 1, snapshot)
            return changed + _apply(connection, experiment_id, last)

    def forget_search(self, experiment_id: int, *, lease: str = "") -> None:
        with self._database.write() as connection:
            lock_experiment(connection, experiment_id, lease)
            delete_search(connection, experiment_id)

    def search_snapshot(self, experiment_id: int) -> tuple[int, Any] | None:
        query = select(search_snapshots).where(search_snapshots.c.experiment_id == experiment_id)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return (int(row.number), row.state) if row else None

    def search_events(self, experiment_id: int, *, start: int = 0) -> list[SearchEvent]:
        of_experiment = (search_events.c.experiment_id == experiment_id, search_events.c.number >= start)
        query = (
            select(*record_columns(search_events, SearchEvent)).where(*of_experiment).order_by(search_events.c.number)
        )
        with self._database.read() as connection:
            return fetch_records(connection, SearchEvent, query)


def _log(connection: Connection, experiment_id: int, events: Sequence[SearchEvent]) -> None:
    if not events:
        return
    try:
        connection.execute(search_events.insert(), [{"experiment_id": experiment_id, **vars(one)} for one in events])
    except IntegrityError as error:
        raise TrackingError(f"experiment {experiment_id} already has search event {events[0].number}") from error


def _keep(connection: Connection, experiment_id: int, number: int, snapshot: Any) -> None:
    connection.execute(search_snapshots.delete().where(search_snapshots.c.experiment_id == experiment_id))
    values = {"experiment_id": experiment_id, "number": number, "state": snapshot}
    connection.execute(search_snapshots.insert().values(values))


def delete_search(connection: Connection, experiment_id: int) -> None:
    """Delete the events, the snapshot and the orders to train of a search."""
    for table in (search_events, search_snapshots):
        connection.execute(table.delete().where(table.c.experiment_id == experiment_id))
    of_experiment = trials.c.experiment_id == experiment_id
    left = update(trials).where(of_experiment)
    unfinished = trials.c.state.not_in([state for state in State if state.final])
    connection.execute(left.where(unfinished).values(state=State.CANCELED, end_time=utc_now()))
    connection.execute(left.where(trials.c.ordered.is_not(None)).values(ordered=None))
    end_runs(connection, RUNNER_ENDED, of_experiment)
    stopped = (runs.c.trial_id.in_(select(trials.c.id).where(of_experiment)), runs.c.early_exit.is_not(None))
    connection.execute(
        update(runs).where(*stopped, runs.c.end_reason.in_(["", RUNNER_ENDED])).values(end_reason=_STOPPED)
    )


def _apply(connection: Connection, experiment_id: int, updates: Sequence[TrialUpdate]) -> list[TrialRecord]:
    if not updates:
        return []
    concerned = (
        trials.c.experiment_id == experiment_id,
        trials.c.request_id.in_(id_list(None, [update.request_id for update in updates])),
    )
    created = {update.request_id: update.new for update in updates if update.new}
    hparams = type_coerce(trials.c.hparams, Text).label("hparams")  # decoded only if they are compared
    facts = (trials.c.id, trials.c.request_id, hparams, trials.c.seed, trials.c.source_checkpoint)
    rows = connection.execute(select(*facts).where(*concerned)).all()
    aside = {row.id for row in rows if _is_other(row, created.get(row.request_id))}
    ids = {row.request_id: row.id for row in rows if row.id not in aside}
    for change, changed in ((_set_aside, aside), (_begin_again, {ids[key] for key in created if key in ids})):
        if changed:
            connection.execute(change, [{"trial": trial} for trial in changed])
    time = utc_now()
    if new := [_row(experiment_id, update, time) for update in updates if update.request_id not in ids]:
        connection.execute(trials.insert(), new)
    if known := [update for update in updates if update.request_id in ids]:
        longer = [update for update in known if update.length is not None]
        if lengths := [{"trial": ids[update.request_id], "new_length": update.length} for update in longer]:
            connection.execute(_set_length, lengths)  # first, because it depends on the state before
        connection.execute(_set_state, [_new_state(ids[update.request_id], update, time) for update in known])
    if ended := [ids[update.request_id] for update in known if update.state.final]:
        end_runs(connection, RUNNER_ENDED, trials.c.id.in_(id_list(None, ended)))
    return fetch_records(
        connection, TrialRecord, select(*record_columns(trials, TrialRecord)).where(*concerned).order_by(trials.c.id)
    )


def _is_other(row: Any, new: NewTrial | None) -> bool:
    """Return whether a restarted search creates a trial that differs from the recorded one with its request id."""
    if new is None:
        return False
    wanted: tuple[Any, ...] = (copy_as_json(new.hparams), new.seed, new.source_checkpoint)
    return wanted != (load_json_value(row.hparams), row.seed, row.source_checkpoint)


def _row(experiment_id: int, update: TrialUpdate, time: datetime) -> dict[str, Any]:
    if update.new is None:
        raise RecordNotFound(f"experiment {experiment_id} has no trial with the request id {update.request_id}")
    return {
        "experiment_id": experiment_id,
        "request_id": update.request_id,
        "task_id": f"{experiment_id}.{uuid.uuid4()}",
        "start_time": time,
        "end_time": time if update.state.final else None,
        "state": update.state,
        "ordered": update.ordered,
        "searcher_length": update.length,
        **vars(update.new),
    }


def _new_state(trial_id: int, update: TrialUpdate, time: datetime) -> dict[str, Any]:
    return {
        "trial": trial_id,
        "new_state": update.state,
        "goes_on": not update.state.final,
        "new_ordered": update.ordered,
        "new_end_time": time if update.state.final else None,
    }
