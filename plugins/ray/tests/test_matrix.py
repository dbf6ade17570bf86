"""All failures of processes, nodes and clusters. ``test_failures`` has one of each kind."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import RunningCluster, hidden_directory, ray_cluster, wait_for
from processes import find_drivers, find_part, left_behind, wait_for_death
from training import RUN, Experiment

from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.testing import campaign_seeds
from det_core.tracking import open_store

pytestmark = [pytest.mark.integration, pytest.mark.campaign, pytest.mark.timeout(280)]

SOAK = pytest.mark.skipif(len(campaign_seeds(1, 2)) < 2, reason="for make soak")
KILLS = [
    ("inner reaper", 1),
    ("outer reaper", 1),
    ("worker", 1),
    ("agent", 0),
    ("actor", 0),
]
"""Processes, and how many restarts their death counts. Otherwise, it counts as an interruption."""
_COUNT_GROUPS = """
import ray
ray.init(address="auto", namespace="det", logging_level="ERROR")
print(sum(group["state"] != "REMOVED" for group in ray.util.placement_group_table().values()))
"""


@pytest.fixture
def store() -> Iterator[TrackingStore]:
    with open_store() as store:
        yield store


@pytest.fixture(autouse=True)
def _nothing_is_left(network: None) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(), "end of all processes of the launch")


@pytest.mark.parametrize("case", campaign_seeds(1, len(KILLS)))
def test_a_process_of_the_node_is_killed(
    store: TrackingStore, tmp_path: Path, cluster: RunningCluster, case: int
) -> None:
    role, restarts = KILLS[case]
    experiment = Experiment(store, tmp_path, max_restarts=1)

    def kill() -> None:
        worker = experiment.wait_for_worker()
        find_part(worker, role).kill()
        wait_for_death(worker)

    experiment.run(kill)
    experiment.require_undisturbed_result()
    assert (experiment.trial.restarts, experiment.trial.interruptions) == (restarts, 1 - restarts)


@pytest.mark.parametrize("whom", [["runner", "driver", "both"][case] for case in campaign_seeds(1, 3)])
def test_a_launch_that_waits_is_withdrawn(
    store: TrackingStore, tmp_path: Path, cluster: RunningCluster, whom: str
) -> None:
    experiment = Experiment(store, tmp_path, {"resources": {"CPU": 64}})
    runner = subprocess.Popen([sys.executable, "-c", RUN.format(experiment.id)], stdin=subprocess.DEVNULL)
    try:
        experiment.wait_for_placement("no node has that")
        (driver,) = find_drivers()
        if whom != "runner":
            driver.kill()
    finally:
        if whom == "driver":
            experiment.wait_for(lambda: find_drivers() not in ([], [driver]), "second driver")
        runner.kill()
        runner.wait()
    wait_for(lambda: not left_behind(), "end of all drivers", 12)
    count = [sys.executable, "-c", _COUNT_GROUPS]
    wait_for(lambda: subprocess.run(count, capture_output=True, text=True, timeout=60).stdout == "0\n", "no groups", 12)


@SOAK
def test_a_removed_group_that_waits_pauses_the_trial(
    store: TrackingStore, tmp_path: Path, cluster: RunningCluster
) -> None:
    experiment = Experiment(store, tmp_path, {"resources": {"CPU": 64}})

    def remove() -> None:
        experiment.wait_for_placement("no node has that")
        cluster.remove_groups()

    assert experiment.run(remove) is State.PAUSED, experiment.describe()
    assert "canceled: its placement group was removed" in str(store.experiment(experiment.id).error)


@SOAK
def test_the_runner_survives_the_head_node(store: TrackingStore, tmp_path: Path, network: None) -> None:
    with pytest.MonkeyPatch.context() as patch, ray_cluster({"CPU": 1}) as lost:
        patch.setenv("RAY_ADDRESS", lost.address)
        experiment = Experiment(store, tmp_path)

        def lose() -> None:
            worker = experiment.wait_for_worker()
            lost.kill_head()
            wait_for_death(worker)

        assert experiment.run(lose) is State.PAUSED, experiment.describe()
        assert "no Ray cluster" in str(store.experiment(experiment.id).error), experiment.describe()
    with pytest.MonkeyPatch.context() as patch, ray_cluster({"CPU": 1}) as other:
        patch.setenv("RAY_ADDRESS", other.address)
        experiment.run()
        experiment.require_undisturbed_result()
    assert experiment.trial.restarts == 0


@SOAK
def test_a_node_without_memory_is_named(store: TrackingStore, tmp_path: Path, cluster: RunningCluster) -> None:
    tight = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "200"}
    experiment = Experiment(store, tmp_path, {"resources": {"tight": 1}}, max_restarts=0)
    cluster.add_node({"CPU": 1, "tight": 1}, **tight)
    try:
        assert experiment.run() is State.ERROR, experiment.describe()
    finally:
        cluster.kill_node(-1)
    assert "out of memory" in str(store.experiment(experiment.id).error), experiment.describe()


@SOAK
def test_a_node_that_is_taken_back_is_a_preemption(
    store: TrackingStore, tmp_path: Path, cluster: RunningCluster
) -> None:
    experiment = Experiment(store, tmp_path, {"resources": {"spot": 1}}, max_restarts=0)
    cluster.add_node({"CPU": 1, "spot": 1})

    def take_back() -> None:
        experiment.wait_for_worker()
        cluster.drain_node(-1)  # a notice, on which the cloud takes the machine
        cluster.kill_node(-1)
        cluster.add_node({"CPU": 1, "spot": 1})
        experiment.wait_for(lambda: experiment.trial.state is State.COMPLETED, "end of the trial")

    try:
        experiment.run(take_back)
    finally:
        while len(cluster.nodes) > 2:
            cluster.kill_node(-1)
    experiment.require_undisturbed_result()
    assert any("(preempted: " in line for line in experiment.lines()), experiment.describe()
    assert (experiment.trial.restarts, experiment.trial.interruptions) == (0, 1), experiment.describe()


@SOAK
def test_a_node_that_does_not_mount_the_checkpoints_is_named(
    store: TrackingStore, tmp_path: Path, cluster: RunningCluster
) -> None:
    experiment = Experiment(store, tmp_path, {"resources": {"apart": 1}})
    over = threading.Event()

    def start_node() -> None:
        with hidden_directory(tmp_path / "checkpoints"):
            cluster.add_node({"CPU": 1, "apart": 1})
            over.wait(200)  # the node ends with the thread

    thread = threading.Thread(target=start_node)
    thread.start()
    try:
        assert experiment.run() is State.PAUSED, experiment.describe()
    finally:
        over.set()
        thread.join()
        cluster.kill_node(-1)
    assert "127.0.0.1 does not see the directory of checkpoint_storage" in str(store.experiment(experiment.id).error)
