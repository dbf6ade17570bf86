"""Runners in the background: which ones are started, and how their start is observed."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from det_core.config import parse_config
from det_core.errors import DetError, LaunchError
from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import _background, _detached
from det_core.runner._background import continue_in_background, resume_in_background, train_in_background
from det_core.runner._detached import start_detached

from ..waiting import wait_for
from .conftest import Submit

Saved = Callable[..., ExperimentRecord]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what happened: experiments that were recorded, and runners that were started."""
    happened: list[Any] = []

    def start(store: TrackingStore, experiment_id: int, **options: bool) -> None:
        happened.append(("started", store.experiment(experiment_id).id, options))

    monkeypatch.setattr(_background, "start_detached", start)
    return happened


def test_a_new_experiment_is_recorded_then_started(
    store: TrackingStore, new_experiment: Submit, context_dir: Path, calls: list[Any]
) -> None:
    config = parse_config(new_experiment().config)
    experiment = train_in_background(store, config, context_dir, original_config="# mine", recorded=calls.append)
    assert calls == [experiment, ("started", experiment.id, {})]
    assert (experiment.state, experiment.original_config) == (State.QUEUED, "# mine")


def test_a_continued_experiment_is_started(store: TrackingStore, saved: Saved, calls: list[Any]) -> None:
    before = saved(State.COMPLETED)
    longer = ["searcher.max_length={batches: 100}"]
    experiment = continue_in_background(store, before.id, longer, recorded=calls.append)
    assert calls == [experiment, ("started", before.id, {})]
    assert (experiment.id, experiment.config["searcher"]["max_length"]) == (before.id, {"batches": 100})


def test_a_fork_is_started(
    store: TrackingStore, saved: Saved, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, fork = saved(State.COMPLETED), saved(State.QUEUED)
    arguments: list[Any] = []
    monkeypatch.setattr(_background, "fork_experiment", lambda *given: arguments.extend(given) or fork)
    assert continue_in_background(store, before.id, ["a=1"], checkpoint="uuid", recorded=calls.append) == fork
    assert arguments == [store, before.id, "uuid", ["a=1"]]
    assert calls == [fork, ("started", fork.id, {})]


def test_a_stopped_experiment_is_resumed(store: TrackingStore, new_experiment: Submit, calls: list[Any]) -> None:
    experiment = new_experiment()
    resume_in_background(store, experiment.id, from_beginning=True, recorded=calls.append)
    assert calls == [experiment, ("started", experiment.id, {"from_beginning": True})]
    script = store.create_experiment(config={}, unmanaged=True)
    with pytest.raises(DetError, match="recorded by a script"):
        resume_in_background(store, script.id, recorded=calls.append)
    assert len(calls) == 2


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replace the interpreter of runners by a shell script."""

    def replace(script: str) -> None:
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
        program.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(program))

    return replace


@pytest.mark.integration
def test_a_runner_receives_the_experiment_as_arguments_and_the_store_as_input(
    store: TrackingStore, new_experiment: Submit, tmp_path: Path, runner: Callable[[str], None]
) -> None:
    experiment = new_experiment()
    runner('echo "$@" >arguments; cat >input')
    start_detached(store, experiment.id, from_beginning=True)
    assert (tmp_path / "arguments").read_text() == f"-m det_core.runner {experiment.id} --from-beginning\n"
    assert (tmp_path / "input").read_text() == f"{store.url}\n"


@pytest.mark.integration
def test_a_runner_that_fails_before_it_holds_the_experiment_is_an_error(
    store: TrackingStore, new_experiment: Submit, runner: Callable[[str], None]
) -> None:
    experiment = new_experiment()
    runner("echo first >&2; exit 3")
    with pytest.raises(LaunchError, match=f"the runner of experiment {experiment.id} failed: first$"):
        start_detached(store, experiment.id)
    runner("echo second >&2; exit 3")
    with pytest.raises(LaunchError, match="failed: second$"):  # without what earlier ones printed
        start_detached(store, experiment.id)


@pytest.mark.integration
def test_a_runner_that_does_not_begin_is_killed(
    store: TrackingStore,
    new_experiment: Submit,
    tmp_path: Path,
    runner: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = new_experiment()
    store.acquire_lease(experiment.id, "host:1:2:other", seconds=600)
    monkeypatch.setattr(_detached, "_START_SECONDS", 0.1)
    runner("exec sleep 600")
    with pytest.raises(LaunchError, match="was not ready within 0 s; see .*/runners/"):
        start_detached(store, experiment.id)


@pytest.mark.integration
@pytest.mark.slow
def test_a_runner_that_waits_for_a_locked_database_is_not_given_up(
    store: TrackingStore, new_experiment: Submit, det_home: Path
) -> None:
    experiment = new_experiment(entrypoint="true")
    with closing(sqlite3.connect(det_home / "det.db", isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        unlock = threading.Timer(35, other.execute, ["ROLLBACK"])
        unlock.start()
        start_detached(store, experiment.id)
        unlock.join()
    wait_for(lambda: store.experiment(experiment.id).state is State.COMPLETED)
