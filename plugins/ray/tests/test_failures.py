"""Each failure ends as documented, the trial continues to the undisturbed result, and nothing is left running."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from cluster import RunningCluster, hidden_directory, ray_cluster, raylet_of, wait_for
from det_ray._config import RayConfig
from det_ray._launcher import RayLauncher
from det_testing.disturbed_experiment import DisturbedExperiment, find_ancestor, is_alive
from processes import find_drivers, left_behind

from det_core.interfaces.launcher import Cause, LaunchRequest
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from tests.engine_fixtures import KILLS_BELOW_THE_AGENT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(280)]

PROMISED = 10.0
"""Seconds within which all processes of a trial end when its runner is gone."""
SLACK = 20.0
KILLS = [*KILLS_BELOW_THE_AGENT, pytest.param("ray::NodeActor", 0, 0, id="actor")]
_COUNT_GROUPS = """
import ray
ray.init(address="auto", namespace="det", logging_level="ERROR")
print(sum(group["state"] != "REMOVED" for group in ray.util.placement_group_table().values()))
"""


@pytest.fixture(autouse=True)
def _nothing_is_left(network: None) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(), "end of all processes of the launch")


@pytest.fixture
def experiment(store: TrackingStore, tmp_path: Path, cluster: RunningCluster) -> DisturbedExperiment:
    return DisturbedExperiment(store, tmp_path, ray(CPU=1), max_restarts=1)


@pytest.fixture
def growing_cluster(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """Return the cluster, and remove after the test the nodes that it has added."""
    yield cluster
    while len(cluster.nodes) > 2:
        cluster.kill_node(-1)


def ray(**resources: float) -> dict[str, object]:
    """Return the block ``launcher`` with the resources of a slot."""
    return {"type": "ray", "resources": resources}


@pytest.mark.parametrize(("text", "index", "restarts"), KILLS)
def test_a_process_of_the_node_is_killed(experiment: DisturbedExperiment, text: str, index: int, restarts: int) -> None:
    def kill() -> None:
        worker = experiment.wait_for_worker()
        find_ancestor(worker, text, index).kill()
        experiment.wait_for(lambda: not is_alive(worker), "end of the worker")

    experiment.run(kill)
    experiment.require_undisturbed_result(restarts=restarts, interruptions=1 - restarts)


@pytest.mark.soak
def test_the_driver_is_killed(experiment: DisturbedExperiment) -> None:
    def kill() -> None:
        worker = experiment.wait_for_worker()
        (driver,) = find_drivers()
        driver.kill()
        wait_for(lambda: not is_alive(worker), "end of the worker", PROMISED + SLACK)

    experiment.run(kill)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)


def test_the_runner_is_killed(experiment: DisturbedExperiment) -> None:
    with experiment.start_runner() as runner:
        try:
            worker = experiment.wait_for_worker()
        finally:
            runner.kill()
    wait_for(lambda: not left_behind(), "end of all processes", PROMISED + SLACK)
    assert not is_alive(worker)
    experiment.run()
    experiment.require_undisturbed_result()


def test_a_removed_group_pauses_the_trial(experiment: DisturbedExperiment, cluster: RunningCluster) -> None:
    def cancel() -> None:
        experiment.wait_for_worker()
        cluster.remove_groups()

    assert experiment.run(cancel) is State.PAUSED, experiment.describe()
    assert "canceled" in experiment.error, experiment.describe()
    experiment.run()
    experiment.require_undisturbed_result()


@pytest.mark.soak
@pytest.mark.parametrize("whom", ["runner", "driver", "both"])
def test_a_launch_that_waits_is_withdrawn(
    store: TrackingStore, tmp_path: Path, cluster: RunningCluster, whom: str
) -> None:
    experiment = DisturbedExperiment(store, tmp_path, ray(CPU=64))
    with experiment.start_runner() as runner:
        try:
            experiment.wait_for_placement("no node has that")
            (driver,) = find_drivers()
            if whom != "runner":
                driver.kill()
            if whom == "driver":
                experiment.wait_for(lambda: find_drivers() not in ([], [driver]), "second driver")
        finally:
            runner.kill()
    wait_for(lambda: not left_behind(), "end of all drivers", PROMISED + SLACK)
    count = [sys.executable, "-c", _COUNT_GROUPS]
    wait_for(lambda: subprocess.run(count, capture_output=True, text=True, timeout=60).stdout == "0\n", "no groups")


@pytest.mark.parametrize("left", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["node", "raylet only"])
def test_a_trial_of_a_lost_node_waits_for_another_one(
    store: TrackingStore, tmp_path: Path, growing_cluster: RunningCluster, left: bool
) -> None:
    experiment = DisturbedExperiment(store, tmp_path, ray(spot=1), max_restarts=0)

    def lose() -> None:
        placement = experiment.wait_for_placement("no node has that")
        assert "it needs 1 spot on one node" in placement
        growing_cluster.add_node({"CPU": 1, "spot": 1})
        worker = experiment.wait_for_worker()
        if left:
            psutil.Process(raylet_of(growing_cluster.nodes[-1])).kill()
            wait_for(lambda: not is_alive(worker), "end of the worker", PROMISED + SLACK + 1)
        growing_cluster.kill_node(-1)
        experiment.wait_for_placement("no node has that")
        growing_cluster.add_node({"CPU": 1, "spot": 1})
        experiment.wait_for(lambda: experiment.trial.state is State.COMPLETED, "end of the trial")

    experiment.run(lose)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)
    assert any("(node lost: " in line for line in experiment.lines()), experiment.describe()


@pytest.mark.soak
def test_a_removed_group_that_waits_pauses_the_trial(
    store: TrackingStore, tmp_path: Path, cluster: RunningCluster
) -> None:
    experiment = DisturbedExperiment(store, tmp_path, ray(CPU=64))

    def remove() -> None:
        experiment.wait_for_placement("no node has that")
        cluster.remove_groups()

    assert experiment.run(remove) is State.PAUSED, experiment.describe()
    assert "canceled: its placement group was removed" in experiment.error


@pytest.mark.soak
def test_the_runner_survives_the_head_node(store: TrackingStore, tmp_path: Path, network: None) -> None:
    with pytest.MonkeyPatch.context() as patch, ray_cluster({"CPU": 1}) as lost:
        patch.setenv("RAY_ADDRESS", lost.address)
        experiment = DisturbedExperiment(store, tmp_path, {"type": "ray"})

        def lose() -> None:
            worker = experiment.wait_for_worker()
            lost.kill_head()
            wait_for(lambda: not is_alive(worker), "end of the worker")

        assert experiment.run(lose) is State.PAUSED, experiment.describe()
        assert "no Ray cluster" in experiment.error, experiment.describe()
    with pytest.MonkeyPatch.context() as patch, ray_cluster({"CPU": 1}) as other:
        patch.setenv("RAY_ADDRESS", other.address)
        experiment.run()
        experiment.require_undisturbed_result()
    assert experiment.trial.restarts == 0


@pytest.mark.soak
def test_a_node_without_memory_is_named(store: TrackingStore, tmp_path: Path, growing_cluster: RunningCluster) -> None:
    tight = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "200"}
    experiment = DisturbedExperiment(store, tmp_path, ray(tight=1), max_restarts=0)
    growing_cluster.add_node({"CPU": 1, "tight": 1}, **tight)
    assert experiment.run() is State.ERROR, experiment.describe()
    assert "out of memory" in experiment.error, experiment.describe()


@pytest.mark.soak
def test_a_node_that_is_taken_back_is_a_preemption(
    store: TrackingStore, tmp_path: Path, growing_cluster: RunningCluster
) -> None:
    experiment = DisturbedExperiment(store, tmp_path, ray(spot=1), max_restarts=0)
    growing_cluster.add_node({"CPU": 1, "spot": 1})

    def take_back() -> None:
        experiment.wait_for_worker()
        growing_cluster.drain_node(-1)  # a notice, on which the cloud takes the machine
        growing_cluster.kill_node(-1)
        growing_cluster.add_node({"CPU": 1, "spot": 1})
        experiment.wait_for(lambda: experiment.trial.state is State.COMPLETED, "end of the trial")

    experiment.run(take_back)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)
    assert any("(preempted: " in line for line in experiment.lines()), experiment.describe()


@pytest.mark.soak
def test_a_node_that_does_not_mount_the_checkpoints_is_named(
    store: TrackingStore, tmp_path: Path, growing_cluster: RunningCluster
) -> None:
    experiment = DisturbedExperiment(store, tmp_path, ray(apart=1))
    over = threading.Event()

    def start_node() -> None:
        with hidden_directory(tmp_path / "checkpoints"):
            growing_cluster.add_node({"CPU": 1, "apart": 1})
            over.wait(200)  # the node ends with the thread

    thread = threading.Thread(target=start_node)
    thread.start()
    try:
        assert experiment.run() is State.PAUSED, experiment.describe()
    finally:
        over.set()
        thread.join()
    assert "127.0.0.1 does not see the directory of checkpoint_storage" in experiment.error


@pytest.mark.soak
def test_a_cluster_that_is_not_there_pauses_the_experiment(store: TrackingStore, tmp_path: Path, network: None) -> None:
    experiment = DisturbedExperiment(store, tmp_path, {"type": "ray", "address": "127.0.0.1:1"})
    assert experiment.run() is State.PAUSED, experiment.describe()
    assert "no Ray cluster at 127.0.0.1:1" in experiment.error, experiment.describe()
    assert "launcher.address" in experiment.error, experiment.describe()


def test_a_launch_on_a_cluster_that_is_not_there_is_not_started(network: None) -> None:
    request = LaunchRequest(
        key="k",
        argv=["true"],
        code=b"",
        info={"trial.json": {"config": {}}},
        slots=1,
        log=lambda *_: None,
        call=lambda *_: b"",
    )
    launcher = RayLauncher(RayConfig(address="127.0.0.1:1", resources={"CPU": 1}))
    with closing(launcher.start(request)) as allocation:
        end = allocation.wait(60)
    assert end and end.cause is Cause.NOT_STARTED and "no Ray cluster at 127.0.0.1:1" in end.message, end
