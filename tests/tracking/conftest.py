"""Every test that takes `store` or `url` runs on SQLite and on a PostgreSQL server of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from det_core.interfaces.tracking import MetricsReport, Run, TrackingStore, Trial
from det_core.testing._lacking import lacking
from det_core.tracking import open_store

BINARIES = Path("/usr/lib/postgresql/15/bin")


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The socket directory of a PostgreSQL server."""
    psycopg = pytest.importorskip("psycopg") if "CI" not in os.environ else __import__("psycopg")
    if not (BINARIES / "postgres").exists():
        lacking(f"no PostgreSQL in {BINARIES}")
    directory = tempfile.mkdtemp(prefix="det-pg-")
    who: dict[str, Any] = {}
    if os.getuid() == 0:  # which PostgreSQL refuses
        shutil.chown(directory, "postgres", "postgres")
        who = {"user": "postgres", "group": "postgres", "extra_groups": []}
    data = f"{directory}/data"
    initdb = [BINARIES / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8"]
    subprocess.run(initdb, check=True, cwd=directory, stdout=subprocess.DEVNULL, **who)
    options = ["-c", "listen_addresses=", "-c", "fsync=off"]
    process = subprocess.Popen(
        [BINARIES / "postgres", "-D", data, "-k", directory, *options], cwd=directory, stderr=subprocess.DEVNULL, **who
    )
    try:
        _wait(lambda: psycopg.connect(host=directory, user="postgres", dbname="postgres").close(), psycopg.Error)
        yield directory
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        shutil.rmtree(directory)


def _wait(attempt: Callable[[], None], error: type[Exception]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            return attempt()
        except error:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/det.db"
    directory = request.getfixturevalue("server")
    import psycopg

    name = f"det_{uuid.uuid4().hex}"
    with psycopg.connect(host=directory, user="postgres", dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql://postgres@/{name}?host={directory}"


@pytest.fixture
def store(url: str) -> Iterator[TrackingStore]:
    with open_store(url) as opened:
        yield opened


@pytest.fixture
def trial(store: TrackingStore) -> Trial:
    """A trial of a new experiment, without a run."""
    return store.create_trial(store.create_experiment(config={"name": "e"}).id, hparams={"lr": 0.1}, seed=7)


@pytest.fixture
def run(store: TrackingStore, trial: Trial) -> Run:
    return store.start_run(trial.id, allocation_id="first")


Report = Callable[..., MetricsReport]


@pytest.fixture
def report(run: Run) -> Report:
    """Makes a report of the first run: ``report(100, loss=0.5)``."""

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
    """Starts another Python on a piece of code: ``python(code, *arguments)``."""

    def start(code: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    return start
