"""Fixtures of the tracking store.

Every test that takes `store` or `url` runs on SQLite and on a private PostgreSQL server. Those that take `store` also
run with the store of an HTTP server, which executes the calls on SQLite, except for those in `NOT_REMOTE`. The answer
to each call that writes gets lost once, so that the client repeats all of them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from det_core.interfaces.records import MetricsReport, Run, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

from ..answering_server import Behaviour, served
from ..postgresql import PostgreSQL, empty_database, running_postgresql


@pytest.fixture(scope="session")
def server() -> Iterator[PostgreSQL]:
    with running_postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def shared_database(server: PostgreSQL) -> str:
    """Return the URL of the database that tests use in turn."""
    return server.create_database()


NOT_REMOTE: Mapping[str, str] = {
    "test_a_clock_that_steps_under_a_lease_leaves_one_writer": "sets the clock of the database",
    "test_a_read_transaction_sees_one_snapshot": "opens a transaction of the database",
    "test_an_older_database_is_upgraded_once": "opens a transaction of the database",
    "test_the_error_names_the_newer_release_to_install": "opens a transaction of the database",
    "test_trials_without_new_lines_are_not_queried": "counts the statements of the database",
}
"""Tests that cannot run with a remote store, with the reasons."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        names: list[Any] = ["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)]
        if "store" in metafunc.fixturenames and metafunc.function.__name__ not in NOT_REMOTE:
            names.append(pytest.param("remote", marks=pytest.mark.slow))
        metafunc.parametrize("backend", names, indirect=True)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """Return ``sqlite``, ``postgresql`` or ``remote``."""
    return str(request.param)


@pytest.fixture
def url(request: pytest.FixtureRequest, backend: str, tmp_path: Path) -> Iterator[str]:
    """Return the URL of an empty database."""
    if backend == "postgresql":
        database: str = request.getfixturevalue("shared_database")
        yield database
        empty_database(database)
    else:
        yield f"sqlite:///{tmp_path}/det.db"


@pytest.fixture
def store(backend: str, url: str) -> Iterator[TrackingStore]:
    with ExitStack() as stack:
        opened = stack.enter_context(open_store(url))
        if backend == "remote":
            address = stack.enter_context(served(Behaviour(opened, loses_each_answer_once=True)))
            opened = stack.enter_context(open_store(address))
        yield opened


@pytest.fixture
def trial(store: TrackingStore) -> TrialRecord:
    """Return a trial of a new experiment, without a run."""
    return store.create_trial(store.create_experiment(config={"name": "e"}).id, hparams={"lr": 0.1}, seed=7)


@pytest.fixture
def run(store: TrackingStore, trial: TrialRecord) -> Run:
    return store.start_run(trial.id, allocation_id="first")


Report = Callable[..., MetricsReport]


@pytest.fixture
def report(run: Run) -> Report:
    """Return a function that makes a report of the first run, as in ``report(100, loss=0.5)``."""

    def make(
        step: int, group: str = "training", batches: list[dict[str, Any]] | None = None, run_id: int = 1, **metrics: Any
    ) -> MetricsReport:
        return MetricsReport(
            trial_id=run.trial_id,
            run_id=run_id,
            group=group,
            steps_completed=step,
            metrics=metrics,
            batch_metrics=batches,
        )

    return make


@pytest.fixture
def python() -> Callable[..., subprocess.Popen[str]]:
    """Return a function that starts another Python process, as in ``python(code, *arguments)``."""

    def start(code: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    return start
