"""Each failure ends as documented, the trial continues to the undisturbed result, and nothing is left running."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cluster import RunningCluster, wait_for
from det_ray._config import RayConfig
from det_ray._launcher import RayLauncher
from processes import find_drivers, find_part, left_behind, wait_for_death
from training import RUN, Experiment

from det_core.interfaces.launcher import Cause, LaunchRequest
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]

PROMISED = 10.0
"""Seconds within which all processes of a trial end when its runner is gone."""
ROLES = {"worker": (1, 0), "agent": (0, 1), "actor": (0, 1)}
"""Processes of a node, and how many restarts and interruptions their death counts."""


@pytest.fixture
def store() -> Iterator[TrackingStore]:
    with open_store() as store:
        yield store


@pytest.fixture(autouse=True)
def _nothing_is_left(network: None) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(), "end of all processes of the launch")


@pytest.fixture
def experiment(store: TrackingStore, tmp_path: Path, cluster: RunningCluster) -> Experiment:
    return Experiment(store, tmp_path, {"resources": {"CPU": 1}}, max_restarts=1)


@pytest.mark.parametrize("role", ROLES)
def test_a_process_of_the_node_is_killed(experiment: Experiment, role: str) -> None:
    def kill() -> None:
        worker = experiment.wait_for_worker()
        find_part(worker, role).kill()
        wait_for_death(worker)

    experiment.run(kill)
    experiment.require_undisturbed_result()
    trial = experiment.trial
    assert (trial.run_id, trial.restarts, trial.interruptions) == (2, *ROLES[role]), experiment.describe()


def test_the_driver_is_killed(experiment: Experiment) -> None:
    def kill() -> None:
        worker = experiment.wait_for_worker()
        (driver,) = find_drivers()
        driver.kill()
        wait_for_death(worker, PROMISED + 2)

    experiment.run(kill)
    experiment.require_undisturbed_result()
    assert (experiment.trial.restarts, experiment.trial.interruptions) == (0, 1), experiment.describe()


def test_the_runner_is_killed(experiment: Experiment) -> None:
    runner = subprocess.Popen(
        [sys.executable, "-c", RUN.format(experiment.id)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        worker = experiment.wait_for_worker()
    finally:
        runner.kill()
        runner.wait()
    wait_for(lambda: not left_behind(), "end of all processes", PROMISED + 2)
    assert not worker.is_running()
    experiment.run()
    experiment.require_undisturbed_result()


def test_a_removed_group_pauses_the_trial(experiment: Experiment, cluster: RunningCluster) -> None:
    def cancel() -> None:
        experiment.wait_for_worker()
        cluster.remove_groups()

    assert experiment.run(cancel) is State.PAUSED, experiment.describe()
    assert "canceled" in str(experiment.store.experiment(experiment.id).error), experiment.describe()
    experiment.run()
    experiment.require_undisturbed_result()


def test_a_trial_of_a_lost_node_waits_for_another_one(
    store: TrackingStore, tmp_path: Path, cluster: RunningCluster
) -> None:
    experiment = Experiment(store, tmp_path, {"resources": {"spot": 1}}, max_restarts=0)

    def lose() -> None:
        placement = experiment.wait_for_placement("no node has that")
        assert "it needs 1 spot on one node" in placement
        cluster.add_node({"CPU": 1, "spot": 1})
        experiment.wait_for_worker()
        cluster.kill_node(-1)
        experiment.wait_for_placement("no node has that")
        cluster.add_node({"CPU": 1, "spot": 1})
        experiment.wait_for(lambda: experiment.trial.state is State.COMPLETED, "end of the trial")

    try:
        experiment.run(lose)
        experiment.require_undisturbed_result()
        assert (experiment.trial.restarts, experiment.trial.interruptions) == (0, 1), experiment.describe()
        assert any("(node lost: " in line for line in experiment.lines()), experiment.describe()
    finally:
        while len(cluster.nodes) > 2:
            cluster.kill_node(-1)


def test_a_cluster_that_is_not_there_pauses_the_experiment(store: TrackingStore, tmp_path: Path, network: None) -> None:
    experiment = Experiment(store, tmp_path, {"address": "127.0.0.1:1"})
    assert experiment.run() is State.PAUSED, experiment.describe()
    error = str(store.experiment(experiment.id).error)
    assert "no Ray cluster at 127.0.0.1:1" in error and "launcher.address" in error, experiment.describe()


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
