"""Elastic trials, which continue without a lost node and grow when it is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster
from det_slurm._config import SlurmConfig
from det_slurm._launcher import SlurmLauncher
from det_testing.requirements import require_module
from test_training import BACKENDS, DIGITS, digits_config

from det_core.config import parse_config
from det_core.interfaces.launcher import LaunchRequest
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, submit_experiment

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(280)]
SECONDS = 200.0


def set_state(cluster: Cluster, *states: str) -> None:
    for state in states:
        cluster.run("scontrol", "update", "nodename=n2", f"state={state}", "reason=test")


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_idle_nodes_are_available(cluster: Cluster) -> None:
    request: Any = LaunchRequest(key="a", argv=[], code=b"", info={}, slots=2, log=print, call=lambda *_: b"")
    launcher = SlurmLauncher(SlurmConfig(slots_per_node=2))
    assert launcher.available_slots(request) == 4
    set_state(cluster, "drain")
    try:
        assert launcher.available_slots(request) == 2
    finally:
        set_state(cluster, "resume")


def test_an_elastic_trial_continues_without_a_lost_node(store: TrackingStore, cluster: Cluster) -> None:
    require_module(*BACKENDS[0][1:])
    config = digits_config("torch_distributed", {"type": "slurm", "slots_per_node": 1}, epochs=10000)
    config["resources"] |= {"min_slots_per_trial": 1, "elastic_timeout": 3}
    experiment = submit_experiment(store, parse_config(config), Path(DIGITS))

    def lines() -> list[str]:
        return [line.log for trial in store.trials(experiment.id) for line in store.logs(trial.id)]

    def starts() -> int:
        """Return the number of runs that train."""
        return sum("running on n1" in line for line in lines())

    def disturb() -> None:
        try:
            wait_for(lambda: any(trial.steps_completed for trial in store.trials(experiment.id)))
            set_state(cluster, "down", "drain")
            wait_for(lambda: starts() == 2)
            set_state(cluster, "resume")
            wait_for(lambda: starts() == 3)
        finally:
            store.set_experiment_state(experiment.id, State.STOPPING_KILLED)

    thread = threading.Thread(target=disturb)
    thread.start()
    ExperimentRunner(store, experiment.id).run()
    thread.join(SECONDS)
    (trial,) = store.trials(experiment.id)
    text = "\n".join(lines())
    assert [line[:22] for line in lines() if line.startswith("running on n1")] == [
        "running on n1, n2 (Slu",
        "running on n1 (Slurm j",
        "running on n1, n2 (Slu",
    ], text
    assert (trial.restarts, trial.interruptions) == (0, 1), text
