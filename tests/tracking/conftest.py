"""Fixtures of the tracking store.

Every test that takes `store` or `url` runs on SQLite and on a private PostgreSQL server. Those that take `store` also
run with the store of an HTTP server, which executes the calls on SQLite, except for those in `NOT_REMOTE`. The answer
to each call that writes gets lost once, so that the client repeats all of them. On PostgreSQL and with the server, a
test with several cases runs one of them, and all in the soak.
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
from ..postgresql import PostgreSQL, delete_all_rows, empty_database, running_postgresql


@pytest.fixture(scope="session")
def server() -> Iterator[PostgreSQL]:
    with running_postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def shared_database(server: PostgreSQL) -> str:
    """Return the URL of the database that tests use in turn, with tables but without rows."""
    return server.create_database()


@pytest.fixture(scope="session")
def bare_database(server: PostgreSQL) -> str:
    """Return the URL of the database that tests without tables use in turn."""
    return server.create_database()


CREATES_TABLES = ("test_database", "test_maintenance", "test_migrations", "test_processes")
"""Modules whose tests need a database without tables, or change the tables."""


NOT_FOR_CLIENTS = ("test_accounts", "test_server_reads", "test_webhooks")
"""Modules with tests of methods that no client may call."""
NOT_REMOTE: Mapping[str, str] = {
    "test_a_clock_that_steps_under_a_lease_leaves_one_writer": "sets the clock of the database",
    "test_a_read_transaction_sees_one_snapshot": "opens a transaction of the database",
    "test_an_older_database_is_upgraded_once": "opens a transaction of the database",
    "test_the_error_names_the_newer_release_to_install": "opens a transaction of the database",
    "test_a_call_with_many_reports_has_few_statements": "counts the statements of the database",
    "test_a_later_run_steps_over_no_reports": "counts the operations of the database",
    "test_what_cannot_be_stored_is_refused_before_reports_are_archived": "counts the operations of the database",
    "test_a_report_reads_no_reports_of_other_steps": "measures memory, which the client needs as well",
    "test_earlier_reports_that_are_large_are_not_in_memory_together": "lowers a limit",
    "test_large_reports_are_not_in_memory_together": "measures memory, which the client needs as well",
    "test_trials_without_new_lines_are_not_queried": "counts the statements of the database",
}
"""Tests that cannot run with a remote store, with the reasons."""

EVERY_CASE: Mapping[str, str] = {
    "test_a_clock_that_steps_under_a_lease_leaves_one_writer": "the database adds to its clock",
    "test_any_number_is_a_metric": "numbers have types of their own",
    "test_curves_of_many_trials_are_returned_in_the_requested_order": "paths into JSON are quoted differently",
    "test_experiments_are_filtered_and_sorted": "each case is another query",
    "test_numbers_beyond_the_range_of_floats_are_not_the_best": "numbers have types of their own",
    "test_only_steps_in_a_range_are_read": "each case is another query",
    "test_rows_are_found_once_while_transactions_are_open": "transactions commit in another order than their ids",
    "test_rows_of_transactions_that_end_later_are_found": "transactions commit in another order than their ids",
    "test_summaries_have_the_numbers_of_each_experiment": "each case is another query",
    "test_values_that_are_not_finite_numbers_are_omitted": "each case is another query",
}
"""Tests all of whose cases run on PostgreSQL, with the reasons."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all but one case of each test to the soak, except on SQLite."""
    seen: set[tuple[str, str]] = set()
    for item in items:
        backend = item.callspec.params.get("backend", "sqlite") if hasattr(item, "callspec") else "sqlite"
        name = item.nodeid.partition("[")[0]
        if backend == "sqlite" or (backend == "postgresql" and name.rpartition("::")[2] in EVERY_CASE):
            continue
        if (name, backend) in seen:
            item.add_marker(pytest.mark.soak)
        seen.add((name, backend))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        names: list[Any] = ["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)]
        module, name = metafunc.definition.path.stem, metafunc.function.__name__
        if "store" in metafunc.fixturenames and module not in NOT_FOR_CLIENTS and name not in NOT_REMOTE:
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
        is_bare = request.path.stem in CREATES_TABLES
        database: str = request.getfixturevalue("bare_database" if is_bare else "shared_database")
        yield database
        (empty_database if is_bare else delete_all_rows)(database)
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


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a key and a certificate of 127.0.0.1 that it signs itself."""
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    key = file.with_name("key.pem")
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=det", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(file)]
    subprocess.run(["openssl", "req", *kind, *names], check=True, capture_output=True)
    file.write_text(file.read_text() + key.read_text())
    return file


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
def python(
    forked: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts another Python process, as in ``python(code, *arguments)``.

    Processes that run when the test ends are killed.
    """
    with ExitStack() as processes:

        def start(code: str, *arguments: object) -> subprocess.Popen[str]:
            script = tmp_path_factory.mktemp("python") / "script.py"
            script.write_text(f"import warnings\nwarnings.simplefilter('error')\n{code}")
            command = [sys.executable, *forked, str(script), *map(str, arguments)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            processes.push(process)
            processes.callback(process.kill)
            return process

        yield start
