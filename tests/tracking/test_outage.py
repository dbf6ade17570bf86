"""Temporary outages of the database. Everything continues afterwards, and nothing is written twice."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import resource
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_core.errors import StoreBusy, TrackingError
from det_core.interfaces.records import LogLine, MetricsReport, State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import _fork_safety, _outage, _sqlite, open_store
from det_core.tracking._column_types import utc_now
from det_core.tracking._outage import Outage, Unavailable

from ..postgresql import PostgreSQL, running_postgresql
from ..waiting import wait_for


@pytest.fixture(scope="module")
def unsteady() -> Iterator[PostgreSQL]:
    """A server that tests may stop. It is started again for each test."""
    with running_postgresql() as server:
        yield server


def metrics(trial_id: int, step: int) -> MetricsReport:
    return MetricsReport(
        trial_id=trial_id, run_id=1, group="training", steps_completed=step, metrics={"x": step}, batch_metrics=[{}]
    )


def line(trial_id: int) -> LogLine:
    return LogLine(trial_id=trial_id, run_id=1, rank=0, stdtype="stdout", log="a line", time=utc_now())


def in_background(call: Callable[[], Any]) -> Callable[[], Any]:
    """Start ``call`` in a thread, and return a function that waits for its result."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()

    def wait() -> Any:
        thread.join(120)
        return results[0]

    return wait


@pytest.mark.integration
def test_postgresql_that_is_restarted_is_waited_for(unsteady: PostgreSQL) -> None:
    with open_store(unsteady.create_database()) as store:
        trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0)
        store.start_run(trial.id, allocation_id="a")
        unsteady.stop()
        calls = [
            in_background(lambda: store.report_metrics([metrics(trial.id, 1)])),
            in_background(lambda: store.add_logs([line(trial.id)])),
            in_background(lambda: store.trial(trial.id).id),
            in_background(lambda: store.count_restart(trial.id)),
        ]
        unsteady.start()
        assert [wait() for wait in calls] == [None, None, trial.id, 1]
        assert [report.steps_completed for report in store.metrics(trial.id)] == [1]
        assert len(store.logs(trial.id)) == 1


@pytest.mark.integration
def test_a_store_is_opened_while_postgresql_starts(unsteady: PostgreSQL) -> None:
    url = unsteady.create_database()
    unsteady.stop()
    opened = in_background(lambda: open_store(url))
    unsteady.start()
    with opened() as store:
        assert store.cluster_id


@pytest.mark.integration
def test_a_transaction_in_which_postgresql_stops_is_repeated(unsteady: PostgreSQL) -> None:
    psycopg = pytest.importorskip("psycopg")
    url = unsteady.create_database()
    with open_store(url) as store, contextlib.closing(psycopg.connect(url)) as other:
        number = store.create_experiment(config={}).id
        other.execute("SELECT * FROM experiments FOR UPDATE")
        call = in_background(lambda: store.set_experiment_progress(number, 0.5))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        with unsteady.connect() as watcher:
            wait_for(lambda: watcher.execute(waits).fetchone()[0])
        unsteady.stop()
        unsteady.start()
        call()
        assert store.experiment(number).progress == 0.5


@pytest.mark.integration
def test_a_reader_of_pages_continues_after_a_restart(unsteady: PostgreSQL) -> None:
    with open_store(unsteady.create_database()) as store:
        trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0)
        store.start_run(trial.id, allocation_id="a")
        store.report_metrics([metrics(trial.id, step) for step in range(2500)])
        reader = store.metrics(trial.id)
        first = [next(reader) for _ in range(1000)]
        unsteady.stop()
        rest = in_background(lambda: list(reader))
        unsteady.start()
        assert [report.steps_completed for report in [*first, *rest()]] == list(range(2500))


class Cutting:
    """Proxy that cuts the connection before the response to COMMIT reaches the client."""

    def __init__(self, directory: Path, server: PostgreSQL) -> None:
        self.cuts = 0
        self._server = f"{server.directory}/.s.PGSQL.5432"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{directory}/.s.PGSQL.5432")
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            threading.Thread(target=self._pass_on, args=(server, client), daemon=True).start()
            while data := client.recv(65536):
                if self.cuts and b"COMMIT" in data:
                    self.cuts -= 1
                    client.shutdown(socket.SHUT_RDWR)  # the server's response is lost
                server.sendall(data)

    def _pass_on(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)


@pytest.mark.integration
def test_a_commit_whose_response_is_lost_is_not_written_twice(unsteady: PostgreSQL, tmp_path: Path) -> None:
    url = unsteady.create_database().replace(unsteady.directory, str(tmp_path))
    between = Cutting(tmp_path, unsteady)
    try:
        with open_store(url) as store:
            between.cuts = 1
            experiment = store.create_experiment(config={})
            assert not between.cuts
            assert [one.id for one in store.experiments()] == [experiment.id]
            trial = store.create_trial(experiment.id, hparams={}, seed=0)
            store.start_run(trial.id, allocation_id="a")
            for report in (metrics(trial.id, 1), metrics(trial.id, 2)):
                between.cuts = 1
                store.report_metrics([report])  # batch metrics must not be reported twice
            between.cuts = 1
            assert store.count_restart(trial.id) == 1
            assert store.trial(trial.id).restarts == 1
            between.cuts = 1
            store.add_logs([line(trial.id)])
            assert len(store.logs(trial.id)) == 1
            assert not between.cuts
    finally:
        between.close()


@pytest.mark.integration
def test_an_outage_has_one_time_limit_for_all_calls(unsteady: PostgreSQL) -> None:
    with open_store(unsteady.create_database(), wait=1.0) as store:
        unsteady.stop()
        try:
            with pytest.raises(StoreBusy, match=r"PostgreSQL says: connection .* failed"):
                store.experiments()
            start = time.monotonic()
            for _ in range(20):
                with pytest.raises(StoreBusy):
                    store.create_experiment(config={})
            assert time.monotonic() - start < 20  # not 1 s each
        finally:
            unsteady.start()
        assert store.experiments() == []


@pytest.mark.integration
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("/det_", "/nothing_"), 'database "nothing_[0-9a-f]+" does not exist'),
        (("postgres@", "nobody@"), 'role "nobody" does not exist'),
        (("postgres@/", "postgres@nowhere.invalid/"), "nowhere.invalid"),
    ],
)
def test_permanent_errors_are_reported_at_once(unsteady: PostgreSQL, change: tuple[str, str], message: str) -> None:
    url = re.sub(r"\?.*", "", unsteady.create_database()) if "invalid" in change[1] else unsteady.create_database()
    with pytest.raises(TrackingError, match=message) as caught:
        open_store(url.replace(*change))
    assert not isinstance(caught.value, StoreBusy)


@pytest.mark.integration
def test_sqlite_has_one_time_limit_for_all_calls(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/det.db", wait=2.0) as store:
        with contextlib.closing(sqlite3.connect(tmp_path / "det.db", isolation_level=None)) as locker:
            locker.execute("BEGIN IMMEDIATE")
            start = time.monotonic()
            for _ in range(10):
                with pytest.raises(StoreBusy, match=r"was locked by another process for 2 s"):
                    store.create_experiment(config={})
            assert 2 < time.monotonic() - start < 20  # not 2 s each
        store.create_experiment(config={})


def test_threads_that_wait_for_sqlite_open_no_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a runner with hundreds of trials would exceed the limit on open files."""
    opened: list[object] = []
    on_connect = _sqlite._on_connect
    monkeypatch.setattr(_sqlite, "_on_connect", lambda *args: opened.append(on_connect(*args)))
    with open_store(f"sqlite:///{tmp_path}/det.db") as store, ThreadPoolExecutor(100) as threads:
        experiment = store.create_experiment(config={}).id
        with contextlib.closing(sqlite3.connect(tmp_path / "det.db", isolation_level=None)) as locker:
            locker.execute("BEGIN IMMEDIATE")
            writes = [threads.submit(store.set_experiment_progress, experiment, 0.5) for _ in range(100)]
            wait_for(lambda: _fork_safety._gate._inside == 100)  # all of them want to write
        for write in writes:
            write.result()
    assert 0 < len(opened) < 10


@pytest.mark.integration
def test_threads_that_wait_for_postgresql_open_few_connections(unsteady: PostgreSQL) -> None:
    """Otherwise a runner with hundreds of trials would exceed the server's limit, which is 100 by default."""
    psycopg = pytest.importorskip("psycopg")
    url = unsteady.create_database()
    with (
        open_store(url) as store,
        ThreadPoolExecutor(60) as threads,
        contextlib.closing(psycopg.connect(url)) as other,
        contextlib.closing(psycopg.connect(url, autocommit=True)) as observer,  # a transaction sees the same all along
    ):
        experiment = store.create_experiment(config={}).id
        other.execute("SELECT FROM experiments FOR UPDATE")
        writes = [threads.submit(store.set_experiment_progress, experiment, 0.5) for _ in range(60)]
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        try:
            wait_for(lambda: _fork_safety._gate._inside == 60)  # all of them want to write
            wait_for(lambda: observer.execute(f"{sessions} AND wait_event_type = 'Lock'").fetchone()[0] >= 8)
            (count,) = observer.execute(sessions).fetchone()
        finally:
            other.rollback()
        for write in writes:
            write.result()
    assert count < 20


def test_all_threads_give_up_at_the_same_time(tmp_path: Path) -> None:
    """A thread that waits for its turn does not start to wait again when its turn comes."""
    with (
        open_store(f"sqlite:///{tmp_path}/det.db", wait=1) as store,
        ThreadPoolExecutor(16) as threads,
        contextlib.closing(sqlite3.connect(tmp_path / "det.db", isolation_level=None)) as locker,
    ):
        experiment = store.create_experiment(config={}).id
        locker.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        writes = [threads.submit(store.set_experiment_progress, experiment, 0.5) for _ in range(16)]
        assert {type(write.exception()) for write in writes} == {Unavailable}
        assert time.monotonic() - began < 15  # 16 threads would take longer one after the other


def test_sqlite_waits_for_a_free_descriptor(tmp_path: Path) -> None:
    """If there are too few for long, a runner pauses its experiment, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open_store(f"sqlite:///{tmp_path}/det.db", wait=0.3) as store:
        store.close()
        next_one = os.dup(0)
        os.close(next_one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, hard))
        try:
            with pytest.raises(StoreBusy, match="too many open files"):
                store.experiments()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert store.experiments() == []


def test_a_write_succeeds_if_sqlite_is_unlocked_in_time(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/det.db") as store:
        locker = sqlite3.connect(tmp_path / "det.db", isolation_level=None, check_same_thread=False)
        locker.execute("BEGIN IMMEDIATE")
        release = threading.Timer(1.5, locker.rollback)
        release.start()
        assert store.create_experiment(config={}).state is State.QUEUED
        release.join()
        locker.close()


def test_an_outage_that_lasts_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = iter([Unavailable("no answer")] * 3)

    def call() -> str:
        for failure in failures:
            raise failure
        return "done"

    outage = Outage(60.0)
    outage._since = time.monotonic() - 10.0
    with caplog.at_level(logging.WARNING):
        assert outage.retry(call) == "done"
    (record,) = caplog.records
    assert re.fullmatch(r"the database is unavailable, will retry for [45]\d s: no answer", record.getMessage())
    assert outage._since is None


def test_an_outage_is_announced_after_three_seconds_and_raised_at_its_limit(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    failures: Iterator[object] = repeat(None)

    def call() -> str:
        for _ in failures:
            raise Unavailable("no answer")
        return "done"

    monkeypatch.setattr(_outage, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(_outage, "_PAUSE", 0.5)
    outage = Outage(4.75)
    with pytest.raises(Unavailable), caplog.at_level(logging.WARNING):
        outage.retry(call)
    assert now == 104.75
    now += 3600  # without a call
    failures = iter([1])
    assert outage.retry(call) == "done"
    assert caplog.messages == ["the database is unavailable, will retry for 2 s: no answer"]  # 1.75 s


def test_every_method_of_the_store_is_repeated() -> None:
    from det_core.tracking._sql_store import SqlTrackingStore

    own = {"close", "__enter__", "__exit__"}
    names = {name for name in TrackingStore.__abstractmethods__ if name not in own}
    plain = {name for name in names if callable(m := getattr(SqlTrackingStore, name)) and not hasattr(m, "__wrapped__")}
    assert plain == set()
