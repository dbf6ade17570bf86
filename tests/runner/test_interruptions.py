"""Ends of launches that are not the trial's fault, launches that fail, and where trials are shown to be."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from det_core.errors import LaunchError
from det_core.interfaces.launcher import Phase, Status
from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import _restart_policy
from det_core.runner._restart_policy import Count

from ..waiting import wait_for
from .conftest import Submit, install_plugin
from .experiment_runs import run, the_trial

pytestmark = pytest.mark.integration

SCRIPTED = Path(__file__).parent / "det_scripted.py"
FAILS_TWICE = 'test "$DET_TRIAL_RUN_ID" -gt 2 || exit 9'
"""Command that fails in its first two runs. The rules on ends of launches are the same for commands and trials."""
SEARCH = {"name": "random", "metric": "validation_loss", "max_trials": 3}


@pytest.fixture(autouse=True)
def scripted(plugin_site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_plugin(plugin_site, SCRIPTED, monkeypatch)


@pytest.fixture(autouse=True)
def quick_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_restart_policy, "FIRST_DELAY", 0.01)
    monkeypatch.setitem(_restart_policy.LIMITS, Count.LAUNCH_SECONDS, 0.1)


@pytest.fixture
def on_engine(new_experiment: Submit) -> Submit:
    """Submit a command that runs on the scripted launcher, whose options are given as keywords."""

    def submit(
        command: str = "true", *, script: Any = (), gates: str = "", limit: int | None = None, **keys: Any
    ) -> ExperimentRecord:
        launcher = {"type": "scripted", "script": list(script), "gates": gates, "max_interruptions": limit}
        searcher = {"name": "single", "metric": "validation_loss"}
        return new_experiment(**{"launcher": launcher, "searcher": searcher, "entrypoint": command, **keys})

    return submit


def log_of(store: TrackingStore, experiment: ExperimentRecord) -> list[str]:
    return [line.log for line in store.logs(the_trial(store, experiment).id)]


def error_of(store: TrackingStore, experiment: ExperimentRecord) -> str:
    return str(store.experiment(experiment.id).error)


@pytest.mark.parametrize("step", ["LaunchError", "LaunchDelayed", "NOT_STARTED"])
def test_failed_launches_lose_no_trial(store: TrackingStore, on_engine: Submit, step: str) -> None:
    """Two trials try, the third one does not, and resume trains all."""
    searcher = {**SEARCH, "max_concurrent_trials": 2}
    experiment = on_engine(script=[step] * 9, searcher=searcher, resources={"max_slots": 1})
    assert run(store, experiment) is State.PAUSED
    trials = store.trials(experiment.id)
    assert [trial.run_id for trial in trials] == [1, 1, *[0] * (len(trials) - 2)]
    assert {trial.state for trial in trials if trial.run_id} == {State.PAUSED}
    assert ("says the engine" if step == "NOT_STARTED" else step) in error_of(store, experiment)
    monkeypatched = sys.modules["det_scripted"]
    monkeypatched.launches.update(dict.fromkeys(list(monkeypatched.launches), 9))
    monkeypatched.launches.update({f"{store.cluster_id}-exp-1-trial-{number}": 9 for number in (1, 2, 3)})
    assert run(store, experiment) is State.COMPLETED
    trials = store.trials(experiment.id)
    assert [(one.state, one.restarts, one.interruptions) for one in trials] == [(State.COMPLETED, 0, 0)] * 3


@pytest.fixture
def watched(store: TrackingStore) -> Iterator[Callable[[ExperimentRecord], threading.Thread]]:
    """Run an experiment in a thread."""
    threads: list[threading.Thread] = []

    def start(experiment: ExperimentRecord) -> threading.Thread:
        threads.append(threading.Thread(target=run, args=[store, experiment], daemon=True))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.join(240)


def test_trials_show_where_they_are(
    store: TrackingStore, on_engine: Submit, tmp_path: Path, watched: Callable[[ExperimentRecord], threading.Thread]
) -> None:
    gates = tmp_path / "gates"
    gates.mkdir()
    experiment = on_engine(f"until test -e {gates}/done; do sleep 0.01; done", gates=str(gates))
    thread = watched(experiment)

    def shows(state: State, placement: str) -> None:
        wait_for(lambda: [(one.state, one.placement) for one in store.trials(experiment.id)] == [(state, placement)])

    shows(State.QUEUED, "queued (Job 7; Priority)")
    (gates / "started").touch()
    shows(State.ACTIVE, "starting on n1, n2 (Job 7)")
    (gates / "running").touch()
    shows(State.ACTIVE, "running on n1, n2 (Job 7)")
    (gates / "done").touch()
    thread.join(240)
    trial = the_trial(store, experiment)
    assert (trial.state, trial.placement) == (State.COMPLETED, "")
    shown = [line for line in log_of(store, experiment) if "Job 7" in line]
    assert [line.split()[0] for line in shown] == ["queued", "starting", "running"]


def test_a_queued_trial_can_be_paused(
    store: TrackingStore, on_engine: Submit, tmp_path: Path, watched: Callable[[ExperimentRecord], threading.Thread]
) -> None:
    gates = tmp_path / "gates"
    gates.mkdir()
    experiment = on_engine(gates=str(gates))
    thread = watched(experiment)
    wait_for(lambda: [trial.state for trial in store.trials(experiment.id)] == [State.QUEUED])
    wait_for(lambda: the_trial(store, experiment).placement)
    store.set_experiment_state(experiment.id, State.PAUSED)
    thread.join(240)
    trial = the_trial(store, experiment)
    assert (trial.state, trial.restarts, store.experiment(experiment.id).error) == (State.PAUSED, 0, None)
    assert trial.placement == ""
    for name in ("started", "running"):
        (gates / name).touch()
    assert run(store, experiment) is State.COMPLETED


def test_an_interrupted_trial_can_be_paused_while_it_waits(
    store: TrackingStore,
    on_engine: Submit,
    monkeypatch: pytest.MonkeyPatch,
    watched: Callable[[ExperimentRecord], threading.Thread],
) -> None:
    monkeypatch.setattr(_restart_policy, "FIRST_DELAY", 200.0)
    experiment = on_engine(FAILS_TWICE, script=["TIME_LIMIT"])
    thread = watched(experiment)
    shown = "interrupted (time limit), starts again in 200 s"
    wait_for(lambda: [one.placement for one in store.trials(experiment.id)] == [shown])
    store.set_experiment_state(experiment.id, State.PAUSED)
    thread.join(240)
    trial = the_trial(store, experiment)
    assert (trial.state, trial.run_id, trial.interruptions, trial.placement) == (State.PAUSED, 1, 1, "")


def test_a_pause_during_a_preemption_pauses(store: TrackingStore, on_engine: Submit) -> None:
    experiment = on_engine("echo ready; sleep 1000", script=["PREEMPTED"], preemption_timeout=0)

    def pause() -> None:
        wait_for(lambda: any(store.trials(experiment.id)) and "ready" in log_of(store, experiment))
        store.set_experiment_state(experiment.id, State.PAUSED)

    with ThreadPoolExecutor() as pool:
        paused = pool.submit(pause)
        assert run(store, experiment) is State.PAUSED
        paused.result()
    trial = the_trial(store, experiment)
    assert (trial.state, trial.run_id, trial.interruptions) == (State.PAUSED, 1, 0)


def test_a_launch_that_fails_after_the_queue_is_postponed(
    store: TrackingStore, on_engine: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Any, timeout: float) -> None:
        raise LaunchError("no such node")

    experiment = on_engine()
    launch = importlib.import_module("det_scripted").ScriptedAllocation
    monkeypatch.setattr(launch, "wait", refuse)
    monkeypatch.setattr(launch, "status", lambda self: Status(phase=Phase.STARTING))
    assert run(store, experiment) is State.PAUSED
    assert "no such node" in error_of(store, experiment)
    trial = the_trial(store, experiment)
    assert (trial.state, trial.placement) == (State.PAUSED, "")
