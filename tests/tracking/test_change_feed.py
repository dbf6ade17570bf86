"""Cursors that say what was added to the tracking store."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from det_core.errors import CallTooLarge
from det_core.interfaces.records import Changes, LogLine, MetricsReport, Run, SystemMetrics, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import _change_feed, _postgresql, _schema, open_store
from det_core.tracking._postgresql import Postgresql
from det_core.tracking._sqlite import Sqlite

NOW = datetime.now(timezone.utc)
Add = Callable[[], None]


def report(store: TrackingStore, run: Run, *steps: int) -> None:
    """Report metrics of a run at these steps."""
    store.report_metrics(
        [
            MetricsReport(
                trial_id=run.trial_id, run_id=run.run_id, group="training", steps_completed=step, metrics={"a": 1}
            )
            for step in steps
        ]
    )


def found(changes: Changes) -> dict[str, list[int]]:
    """Return what has changed, without the cursor."""
    return {name: list(ids) for name, ids in vars(changes).items() if name != "cursor" and ids}


def new_run(store: TrackingStore) -> Run:
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0)
    return store.start_run(trial.id, allocation_id="a")


def test_each_kind_of_addition_is_found_once(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    which: dict[str, Any] = {"trial_id": trial.id, "run_id": 1}
    additions: dict[str, tuple[Add, int]] = {
        "metrics": (
            lambda: store.report_metrics(
                [MetricsReport(**which, group="validation", steps_completed=3, metrics={"loss": 1})]
            ),
            trial.id,
        ),
        "system_metrics": (
            lambda: store.report_system_metrics([SystemMetrics(**which, group="cpu", metrics={}, time=NOW)]),
            trial.id,
        ),
        "checkpoints": (lambda: store.begin_checkpoint("c", storage={}, **which), trial.id),
        "logs": (lambda: store.add_logs([LogLine(**which, rank=0, stdtype="stdout", log="x", time=NOW)]), trial.id),
        "experiments": (lambda: void(store.create_experiment(config={})), trial.experiment_id + 1),
    }
    cursor = store.changes().cursor
    for name, (add, subject) in additions.items():
        assert found(store.changes(cursor)) == {}
        add()
        changes = store.changes(cursor)
        assert found(changes) == {name: [subject]}
        cursor = changes.cursor
    store.create_trial(trial.experiment_id, hparams={}, seed=0)
    assert found(store.changes(cursor)) == {"experiments": [trial.experiment_id]}


def void(_: object) -> None:
    """Discard a result."""


def test_trials_are_named_once_and_a_cursor_can_be_used_again(store: TrackingStore) -> None:
    first, second, third = new_run(store), new_run(store), new_run(store)
    report(store, third, 1)
    cursor = store.changes().cursor
    report(store, second, *range(100))
    report(store, first, *range(100))
    for _ in range(2):
        changes = store.changes(cursor)
        assert found(changes) == {"metrics": [first.trial_id, second.trial_id]}
    assert found(store.changes(changes.cursor)) == {}


def test_a_report_that_is_merged_into_another_is_found(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    def add(**metrics: float) -> None:
        key: dict[str, Any] = {"trial_id": trial.id, "run_id": 1, "group": "validation", "steps_completed": 1}
        store.report_metrics([MetricsReport(**key, metrics=metrics)])

    add(a=1)
    cursor = store.changes().cursor
    add(b=2)
    changes = store.changes(cursor)
    assert found(changes) == {"metrics": [trial.id]}
    assert found(store.changes(changes.cursor)) == {}
    assert [report.metrics for report in store.metrics(trial.id)] == [{"a": 1, "b": 2}]
    assert list(store.metrics(trial.id, archived=True)) == []


def test_rows_that_a_cursor_leaves_out_are_read_for_a_limited_time(
    store: TrackingStore, trial: TrialRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers that no call returned may leave out all rows of PostgreSQL. With SQLite, there are none to leave out."""
    largest, later = 2**63 - 1, 10**6
    cursor = f"0,0,0,0,0,0;0,0,0,0,0,0,{later};{','.join([str(largest)] * 6)},{later}"
    line = LogLine(trial_id=trial.id, run_id=1, rank=0, stdtype="stdout", log="x", time=NOW)
    store.add_logs([line] * 10_000)
    for database in (Sqlite, Postgresql):
        monkeypatch.setattr(database, "most_seconds", 0.001)
    with pytest.raises(CallTooLarge, match=r"after the cursor take more than 0\.001 s to read; begin with an empty"):
        store.changes(cursor)


def test_many_rows_are_read_in_pieces(store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [new_run(store) for _ in range(3)]
    cursor = store.changes().cursor
    for run in runs:
        report(store, run, *range(7))
    monkeypatch.setattr(_change_feed, "_ROWS", 5)
    pieces = []
    while names := found(changes := store.changes(cursor)):
        pieces.append(names["metrics"])
        cursor = changes.cursor
    one, two, three = (run.trial_id for run in runs)
    assert pieces == [[one], [one, two], [two, three], [three], [three]][: len(pieces)]
    assert pieces[-1] == [three]
    assert len(pieces) == 5  # 21 rows


@pytest.mark.parametrize(("read", "end"), [([3, 1], 9), ([3, 2], 7), ([], 9)])
def test_a_table_has_more_rows_only_if_a_call_read_as_many_as_it_may(
    monkeypatch: pytest.MonkeyPatch, read: list[int], end: int
) -> None:
    """A partial end is the last row that was read, as later rows of transactions in progress may be missing."""
    monkeypatch.setattr(_change_feed, "_ROWS", 5)
    rows: list[Any] = [SimpleNamespace(subject=1, last=7 - place, rows=count) for place, count in enumerate(read)]
    assert _change_feed._end([*rows, SimpleNamespace(subject=None, last=9)]) == end


def test_ids_that_are_used_again_after_a_deletion_are_found(store: TrackingStore) -> None:
    kept, deleted = new_run(store), new_run(store)
    report(store, kept, 1)
    report(store, deleted, *range(50))
    cursor = store.changes().cursor
    store.delete_experiment(store.trial(deleted.trial_id).experiment_id)
    after_deletion = store.changes(cursor).cursor
    report(store, kept, 2)
    assert found(store.changes(after_deletion)) == {"metrics": [kept.trial_id]}
    changes = store.changes(cursor)
    assert found(changes)["metrics"] == [kept.trial_id]
    report(store, kept, 3)
    assert found(store.changes(changes.cursor)) == {"metrics": [kept.trial_id]}
    assert not found(store.changes(store.changes(changes.cursor).cursor))


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "1",
        "1,2,3,4,5",
        "1,2,3,4,5,6,7",
        "1,2,3,4,5,-6",
        "1,2,3,4,5,6;",
        "1,2,3,4,5,6\n",
        "٣,2,3,4,5,6",
        "9" * 19,
        "1,2,3,4,5,6;1,2,3,4,5,6,7;1,2,3,4,5,6",
        f"1,2,3,4,5,6;1,2,3,4,5,6,7;1,2,3,4,5,6{',7' * 101}",
    ],
)
def test_other_cursors_are_rejected(store: TrackingStore, cursor: str) -> None:
    with pytest.raises(ValueError, match="is not a cursor of changes"):
        store.changes(cursor)
    with pytest.raises(ValueError, match="is not a cursor of changes"):
        store.changes(f"1,2,3,4,5,{2**63}")


@pytest.mark.parametrize("rows", [1, 2, 3, 10_000])
def test_rows_of_transactions_that_end_later_are_found(url: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions of PostgreSQL may commit in another order than that of their ids."""
    if not url.startswith("postgresql"):
        pytest.skip("SQLite has one transaction at a time that writes")
    monkeypatch.setattr(_change_feed, "_ROWS", rows)
    with open_store(url) as store:
        late, early, later = new_run(store), new_run(store), new_run(store)
        before = store.changes().cursor
        with open_transaction(store, late) as insert:
            report(store, early, 1)
            during = store.changes().cursor
            insert(later)
            report(store, early, 2)
            seen = store.changes(before)
            assert found(seen) == {"metrics": [early.trial_id]}
            for _ in range(3):
                report(store, early, 3)
                again = store.changes(seen.cursor)
                assert early.trial_id in again.metrics
        of_an_earlier_release = again.cursor.rpartition(";")[0]
        for cursor in (before, during, seen.cursor, again.cursor, of_an_earlier_release):
            with open_transaction(store, early):
                changes = store.changes(cursor)
            names = [*changes.metrics]
            while found(changes := store.changes(changes.cursor)):
                names += changes.metrics
            assert {late.trial_id, later.trial_id} <= {*names}


@pytest.mark.parametrize("most", [1, 2, 100])
def test_rows_are_found_once_while_transactions_are_open(url: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cursor names at most so many of the transactions in progress."""
    if not url.startswith("postgresql"):
        pytest.skip("SQLite has one transaction at a time that writes")
    monkeypatch.setattr(_postgresql, "MOST_UNSEEN", most)
    with open_store(url) as store:
        first, early, second = new_run(store), new_run(store), new_run(store)
        changes = store.changes()
        with open_transaction(store, first):
            for step in range(2):
                report(store, early, step)
                changes = store.changes(changes.cursor)
                assert found(changes) == {"metrics": [early.trial_id]}
                if most > 1:
                    changes = store.changes(changes.cursor)
                    assert found(changes) == {}
            with open_transaction(store, second):
                report(store, early, 2)
                changes = store.changes(changes.cursor)
                assert found(changes) == {"metrics": [early.trial_id]}
            changes = store.changes(changes.cursor)
            assert second.trial_id in changes.metrics
            if most > 2:
                assert found(changes) == {"metrics": [second.trial_id]}
                assert found(store.changes(changes.cursor)) == {}
        changes = store.changes(changes.cursor)
        assert first.trial_id in changes.metrics
        assert found(store.changes(changes.cursor)) == {}


@contextmanager
def open_transaction(store: TrackingStore, run: Run) -> Iterator[Callable[[Run], None]]:
    """Insert a row of metrics, and commit it at the end of the block together with those that it inserts."""

    def insert(run: Run) -> None:
        row = {"trial_id": run.trial_id, "run_id": 1, "steps_completed": 1, "metrics": {}, "time": NOW}
        connection.execute(_schema.metrics.insert().values(**row, group=uuid.uuid4().hex))

    with store._database.write() as connection:  # type: ignore[attr-defined]
        insert(run)
        yield insert
