"""Outages of the database during training. Nothing is lost, and after a long outage the experiment can be resumed."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from det_core.errors import StaleRun, StoreBusy
from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner
from det_core.tracking import _lease, open_store
from det_core.tracking._lease import Lease

from ..postgresql import PostgreSQL, running_postgresql
from ..waiting import wait_for
from .conftest import Submit

pytestmark = pytest.mark.integration

SLOW = "def on_batch(self, batch): time.sleep(0.05)"
CONFIG: dict[str, Any] = {
    "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 20}},
    "scheduling_unit": 5,
    "min_validation_period": {"batches": 5},
    "max_restarts": 0,
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    """A server that tests may stop. It is started again for each test."""
    with running_postgresql() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, det_home: Path, server: PostgreSQL) -> str:
    det_home.mkdir()
    return server.create_database() if request.param == "postgresql" else f"sqlite:///{det_home}/det.db"


@pytest.fixture
def store(url: str) -> Iterator[TrackingStore]:
    with open_store(url) as store:
        yield store


@pytest.fixture
def outage(url: str, server: PostgreSQL) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Block all writes to the database during the block."""

    @contextlib.contextmanager
    def outage() -> Iterator[None]:
        if url.startswith("postgresql"):
            server.stop()
            try:
                yield
            finally:
                server.start()
            return
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as locker:
            locker.execute("PRAGMA busy_timeout = 60000")
            locker.execute("BEGIN IMMEDIATE")
            yield
            locker.execute("ROLLBACK")

    return outage


Outage = Callable[[], contextlib.AbstractContextManager[None]]


def started(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Run ``call`` in a thread, and append its result or exception to the list."""
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001  (compared by the test)
            results.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, results


def has_reported(store: TrackingStore, experiment: ExperimentRecord) -> bool:
    return any(trial.steps_completed for trial in store.trials(experiment.id))


def assert_whole(store: TrackingStore, experiment: ExperimentRecord) -> None:
    (trial,) = store.trials(experiment.id)
    assert (trial.state, trial.restarts) == (State.COMPLETED, 0)
    assert store.experiment(experiment.id).state is State.COMPLETED
    for group in ("training", "validation"):
        steps = [report.steps_completed for report in store.metrics(trial.id, group=group)]
        assert steps == list(range(5, 21, 5)), group


@pytest.mark.slow
def test_an_experiment_continues_after_a_short_outage(
    store: TrackingStore, new_experiment: Submit, outage: Outage
) -> None:
    experiment = new_experiment(SLOW, **CONFIG)
    thread, results = started(ExperimentRunner(store, experiment.id).run)
    wait_for(lambda: has_reported(store, experiment))
    with outage():
        thread.join(1.5)
        assert thread.is_alive()
    thread.join(60)
    assert results == [State.COMPLETED]
    assert_whole(store, experiment)
    assert store.trials(experiment.id)[0].run_id == 1


@pytest.mark.slow
def test_an_experiment_can_be_resumed_after_a_long_outage(
    store: TrackingStore, new_experiment: Submit, outage: Outage
) -> None:
    experiment = new_experiment(SLOW, **CONFIG)
    with open_store(store.url, wait=0.5) as hasty:
        thread, results = started(ExperimentRunner(hasty, experiment.id).run)
        wait_for(lambda: has_reported(store, experiment))
        with outage():
            thread.join(60)
    (error,) = results
    assert isinstance(error, StoreBusy)
    assert str(error).endswith(f"to continue it: det experiment resume {experiment.id}")
    assert store.experiment(experiment.id).state is State.ACTIVE  # the outage lasted until its end
    store.release_lease(experiment.id, str(store.lease_holder(experiment.id)))  # its runner's process lives on here
    assert ExperimentRunner(store, experiment.id).run() is State.COMPLETED
    assert_whole(store, experiment)


@pytest.fixture
def lease(store: TrackingStore, new_experiment: Submit, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lease]:
    monkeypatch.setattr(_lease, "_SECONDS", 3.0)
    monkeypatch.setattr(_lease, "_RENEW_EVERY", 0.1)
    lease = Lease(store, new_experiment().id)
    yield lease
    lease.release()


def test_the_lease_is_renewed_while_the_runner_waits(store: TrackingStore, lease: Lease) -> None:
    """A separate thread renews it, because a runner that waits for a custom search method does nothing else."""
    for _ in range(3):
        time.sleep(1.2)
        assert store.lease_holder(1) == lease.holder
    lease.check()
    lease.release()
    assert store.lease_holder(1) is None


def test_the_lease_is_taken_back_after_an_outage(store: TrackingStore, lease: Lease, outage: Outage) -> None:
    with outage():
        time.sleep(3.2)
    wait_for(lambda: store.lease_holder(1) == lease.holder)
    lease.check()


def test_a_lease_that_another_runner_took_is_not_taken_back(
    store: TrackingStore, new_experiment: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_lease, "_SECONDS", 0.1)
    monkeypatch.setattr(_lease, "_RENEW_EVERY", 2.0)
    lease = Lease(store, new_experiment().id)
    wait_for(lambda: store.lease_holder(1) is None)
    store.acquire_lease(1, "another:1:1:1", seconds=60)
    lease._thread.join(120)
    with pytest.raises(StaleRun, match="no longer run by .*, but by another:1:1:1"):
        lease.check()
    lease.release()
    assert store.lease_holder(1) == "another:1:1:1"
