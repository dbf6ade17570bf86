"""Fixtures of the tracking store.

Every test that takes `store` or `url` runs on SQLite and on a private PostgreSQL server.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from det_core.interfaces.records import MetricsReport, Run, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

from ..postgresql import PostgreSQL, running_postgresql


@pytest.fixture(scope="session")
def server() -> Iterator[PostgreSQL]:
    with running_postgresql() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/det.db"
    server: PostgreSQL = request.getfixturevalue("server")
    return server.create_database()


@pytest.fixture
def store(url: str) -> Iterator[TrackingStore]:
    with open_store(url) as opened:
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
