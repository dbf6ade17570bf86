"""Elastic trials, which continue without a lost node and grow when there is another one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from cluster import RunningCluster
from det_ray import _launcher
from det_ray._config import RayConfig
from det_ray._launcher import RayLauncher
from det_testing.requirements import require_module
from test_training import BACKENDS, DIGITS

from det_core.config import load_config
from det_core.interfaces.launcher import LaunchRequest
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, submit_experiment

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(280), pytest.mark.usefixtures("cluster")]
SPOT = {"CPU": 1, "spot": 1}
"""Resources of a node that comes and goes."""
SECONDS = 200.0


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("options", "slots"), [({}, 2), ({"resources": {"CPU": 0.5}}, 4), ({"resources": {"GPU": 1}}, 0)]
)
def test_free_resources_are_available(options: dict[str, Any], slots: int) -> None:
    request = LaunchRequest(key="a", argv=[], code=b"", info={}, slots=1, log=print, call=lambda *_: b"")
    assert RayLauncher(RayConfig(**options)).available_slots(request) == slots


def test_an_elastic_trial_continues_without_a_lost_node(
    store: TrackingStore, cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module(*BACKENDS[0][1:])
    monkeypatch.setattr(_launcher, "_LOOK_EVERY", 3.0)
    changes = [
        "searcher.max_length={epochs: 10000}",
        "resources={slots_per_trial: 2, min_slots_per_trial: 1, elastic_timeout: 15}",
        "launcher={type: ray, slots_per_node: 1, resources: {spot: 1}}",
        "distributed.backend=torch_distributed",
    ]
    experiment = submit_experiment(store, load_config(DIGITS / "const.yaml", changes), DIGITS)

    def lines(beginning: str) -> list[str]:
        return [
            line.log
            for trial in store.trials(experiment.id)
            for line in store.logs(trial.id)
            if line.log.startswith(beginning)
        ]

    has_nodes = threading.Event()

    def disturb() -> None:
        try:
            for _ in range(2):
                cluster.add_node(SPOT)  # nodes end with the thread that starts them
            has_nodes.set()
            wait_for(lambda: any(trial.steps_completed for trial in store.trials(experiment.id)))
            cluster.kill_node(-1)
            wait_for(lambda: len(lines("running on")) == 2)
            cluster.add_node(SPOT)
            wait_for(lambda: len(lines("running on")) == 3)
        finally:
            store.set_experiment_state(experiment.id, State.STOPPING_KILLED)
            wait_for(lambda: store.experiment(experiment.id).state.final)
            while len(cluster.nodes) > 2:
                cluster.kill_node(-1)

    thread = threading.Thread(target=disturb)
    thread.start()
    assert has_nodes.wait(SECONDS)
    ExperimentRunner(store, experiment.id).run()
    thread.join(SECONDS)
    (trial,) = store.trials(experiment.id)
    text = "\n".join(lines(""))
    assert [line[9] for line in lines("it needs") if line.endswith(" slots")] == ["2", "2", "1", "2"], text
    assert len(lines("running on")) == 3, text
    assert (trial.restarts, trial.interruptions) == (0, 1), text
