"""What the observer records, and stores that it cannot write."""

from __future__ import annotations

import math
import sqlite3
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime, timezone
from typing import Any

import pytest

from det_core import events
from det_core.interfaces.observer import ObserverContext
from det_core.interfaces.records import MetricsReport

HPARAMS = {"lr": 0.1, "optimizer": {"name": "sgd"}}
TIME = datetime(2026, 1, 2, tzinfo=timezone.utc)

Open = Callable[..., Any]


@pytest.fixture
def project() -> str:
    return f"digits-{uuid.uuid4().hex}"


@pytest.fixture
def open_observer(project: str, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Return a function that opens an observer of trial 3 as det does."""
    from det_trackio import _project
    from det_trackio._config import TrackioConfig
    from det_trackio._observer import TrackioObserver

    monkeypatch.setattr(_project, "_TIMEOUT", 0.1)

    def start(stored: Sequence[MetricsReport] = (), searcher: str = "random", **options: str) -> TrackioObserver:
        observer = TrackioObserver(TrackioConfig.model_validate({"project": project, **options}))
        observer.open(
            ObserverContext(
                place="worker",
                cluster_id="cluster",
                experiment_id=7,
                trial_id=3,
                config={"searcher": {"name": searcher}},
                fetch_files=lambda *_: None,
                fetch_metrics=lambda: stored,
            )
        )
        return observer

    return start


def report(observer: Any, step: int, **metrics: Any) -> None:
    observer.notify(
        events.MetricsReported(
            experiment_id=7,
            config={},
            trial_id=3,
            run_id=2,
            hparams=HPARAMS,
            group="training",
            steps_completed=step,
            metrics=metrics,
            time=TIME,
        )
    )


def stored_report(step: int, **metrics: Any) -> MetricsReport:
    return MetricsReport(trial_id=3, run_id=1, group="training", steps_completed=step, metrics=metrics, time=TIME)


def losses(project: str) -> list[tuple[int, Any]]:
    from .history import history, runs

    return [(row["step"], row["training/loss"]) for run in runs(project) for row in history(project, run)]


@pytest.mark.parametrize(
    ("searcher", "options", "group"),
    [("random", {}, "experiment 7"), ("single", {}, None), ("single", {"group": "mine"}, "mine")],
)
def test_a_run_has_the_config_and_the_group_of_its_trial(
    open_observer: Open, project: str, searcher: str, options: dict[str, str], group: str | None
) -> None:
    from .history import runs

    observer = open_observer(searcher=searcher, **options)
    report(observer, 1, loss=0.5)
    observer.flush()
    (run,) = runs(project)
    assert run.name == "trial 3"
    config = dict(run.config)
    assert config.pop("_Created") and config.pop("_Group") == group
    assert config == HPARAMS | {"det.cluster_id": "cluster", "det.experiment_id": 7, "det.trial_id": 3}


def test_reports_of_the_same_step_are_merged_and_keep_special_values(open_observer: Open, project: str) -> None:
    from .history import history, runs

    observer = open_observer()
    report(observer, 1, loss=0.5)
    observer.flush()
    report(observer, 1, lr=math.inf, empty=math.nan)
    observer.flush()
    (row,) = history(project, runs(project)[0])
    assert (row["training/loss"], row["training/lr"]) == (0.5, math.inf) and math.isnan(row["training/empty"])


def test_a_new_run_of_the_trial_replaces_what_the_tracking_store_does_not_have(
    open_observer: Open, project: str
) -> None:
    first = open_observer()
    for step in (1, 2, 3):
        report(first, step, loss=0.5)
    first.flush()
    second = open_observer([stored_report(1, loss=0.25), stored_report(2, loss=0.25)])
    report(second, 3, loss=0.75)
    second.flush()
    assert losses(project) == [(1, 0.25), (2, 0.25), (3, 0.75)]


def test_a_project_that_was_deleted_meanwhile_is_written_anew(open_observer: Open, project: str) -> None:
    from trackio.sqlite_storage import SQLiteStorage

    stored = [stored_report(1, loss=0.5), stored_report(2, loss=0.25)]
    observer = open_observer(stored)
    report(observer, 1, loss=0.5)
    observer.flush()
    SQLiteStorage.get_project_db_path(project).unlink()
    report(observer, 2, loss=0.25)
    observer.flush()
    assert losses(project) == [(1, 0.5), (2, 0.25)]


def test_what_was_reported_while_the_database_was_held_arrives_afterwards(open_observer: Open, project: str) -> None:
    from det_trackio._project import TrackioError
    from trackio.sqlite_storage import SQLiteStorage

    stored: list[MetricsReport] = []
    observer = open_observer(stored)
    with closing(sqlite3.connect(SQLiteStorage.init_db(project))) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        stored.append(stored_report(1, loss=0.5))
        report(observer, 1, loss=0.5)
        with pytest.raises(TrackioError, match=f"{project}.db: database is locked; .*TRACKIO_DIR"):
            observer.flush()
    observer.flush()
    assert losses(project) == [(1, 0.5)]


def test_a_directory_without_a_database_is_an_error(open_observer: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    from det_trackio._project import TrackioError

    monkeypatch.setenv("TRACKIO_STORAGE_MODE", "jsonl")
    with pytest.raises(TrackioError, match="network file system; set TRACKIO_DIR"):
        open_observer()


def test_a_name_that_trackio_reserves_is_an_error(open_observer: Open) -> None:
    from det_trackio._project import TrackioError

    with pytest.raises(TrackioError, match="reserved.*observers.trackio.project"):
        open_observer(project="registry-mine")
