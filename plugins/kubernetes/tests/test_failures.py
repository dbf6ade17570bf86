"""Each failure ends as documented, and the trial continues to the undisturbed result."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psutil
import pytest
from det_testing.disturbed_experiment import PARTS, DisturbedExperiment, find_ancestor
from fake_cluster import MISSING_IMAGE, FakeCluster

from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore

pytestmark = [pytest.mark.integration, pytest.mark.timeout(280)]

IMAGE = "registry.invalid/det:1"
KILLS = [
    pytest.param(*PARTS["worker"], 1, id="worker", marks=pytest.mark.soak),
    pytest.param(*PARTS["shell"], 1, id="shell", marks=pytest.mark.soak),
    pytest.param(*PARTS["inner reaper"], 1, id="inner reaper", marks=pytest.mark.soak),
    pytest.param(*PARTS["outer reaper"], 1, id="outer reaper", marks=pytest.mark.soak),
    pytest.param(*PARTS["agent"], 0, id="agent"),
]
"""Parts of the command lines of processes above a worker, the number of such processes that are below, and the number
of restarts that the death counts as. Otherwise, it counts as an interruption."""


def make_experiment(
    store: TrackingStore, directory: Path, *, image: str = IMAGE, options: Any = (), **keys: Any
) -> DisturbedExperiment:
    launcher = {"type": "kubernetes", **dict(options)}
    return DisturbedExperiment(store, directory, launcher, environment={"image": image}, **keys)


@pytest.fixture
def experiment(store: TrackingStore, tmp_path: Path, cluster: FakeCluster) -> DisturbedExperiment:
    return make_experiment(store, tmp_path, max_restarts=1)


def shown(experiment: DisturbedExperiment) -> str:
    """Return the line about the end of the first run."""
    (line,) = [line for line in experiment.lines() if re.match(r"run 1 of trial \d+ (exited|was)", line)]
    return line


def test_a_deleted_pod_saves_a_checkpoint(experiment: DisturbedExperiment, cluster: FakeCluster) -> None:
    def delete() -> None:
        experiment.wait_for_worker()
        (name,) = cluster.pods
        cluster.delete(name)

    experiment.run(delete)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)
    assert re.search(r"exited with code 0 \(preempted: det-\S+-0 was deleted\)", shown(experiment))
    assert "after 5 batches" in experiment.describe()


@pytest.mark.parametrize(("text", "index", "restarts"), KILLS)
def test_a_process_of_the_pod_is_killed(experiment: DisturbedExperiment, text: str, index: int, restarts: int) -> None:
    experiment.run(lambda: find_ancestor(experiment.wait_for_worker(), text, index).kill())
    experiment.require_undisturbed_result(restarts=restarts, interruptions=1 - restarts)


def test_a_pod_without_memory_is_named(experiment: DisturbedExperiment, cluster: FakeCluster) -> None:
    def kill() -> None:
        experiment.wait_for_worker()
        (name,) = cluster.pods
        ended = {"name": "determined-container", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
        cluster.set_status(name, kill=True, phase="Failed", containerStatuses=[ended])

    experiment.run(kill)
    experiment.require_undisturbed_result(restarts=1, interruptions=0)
    assert re.search(r"\(out of memory: det-\S+-0: OOMKilled\)", shown(experiment))


def test_a_lost_node_is_named(experiment: DisturbedExperiment, cluster: FakeCluster) -> None:
    def lose() -> None:
        experiment.wait_for_worker()
        (name,) = cluster.pods
        cluster.record_event(name, "NodeNotReady", "Node is not ready")
        cluster.set_status(name, kill=True)

    experiment.run(lose)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)
    assert re.search(r"\(node lost: det-\S+-0: NodeNotReady: Node is not ready\)", shown(experiment))


def test_an_image_that_is_not_there_pauses_the_experiment(
    store: TrackingStore, tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_kubernetes._pod_job._IMAGE_SECONDS", 2.0)
    experiment = make_experiment(store, tmp_path, image=MISSING_IMAGE)
    assert experiment.run(lambda: experiment.wait_for_placement("ErrImagePull: not found")) is State.PAUSED
    assert "the image cannot be pulled: ErrImagePull: not found" in experiment.error
    assert experiment.trial.restarts == 0


def test_a_pod_waits_for_a_node(store: TrackingStore, tmp_path: Path, cluster: FakeCluster) -> None:
    experiment = make_experiment(store, tmp_path, options={"resources": {"cpu": 64}})

    def add_node() -> None:
        placement = experiment.wait_for_placement("Unschedulable")
        assert "0/2 nodes are available: 2 Insufficient cpu." in placement
        store.set_experiment_state(experiment.id, State.STOPPING_PAUSED)

    assert experiment.run(add_node) is State.PAUSED, experiment.describe()


def test_pods_wait_for_quota(
    store: TrackingStore, tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_kubernetes._pod_job._QUOTA_SECONDS", 0.2)
    experiment = make_experiment(store, tmp_path)
    experiment.release.touch()
    cluster.refusal = (
        403,
        'pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=0, limited: pods=0',
    )

    def allow() -> None:
        experiment.wait_for_placement("exceeded quota: small")
        cluster.refusal = None

    assert experiment.run(allow) is State.COMPLETED, experiment.describe()
    assert experiment.trial.restarts == experiment.trial.interruptions == 0


def test_a_refused_pod_pauses_the_experiment(store: TrackingStore, tmp_path: Path, cluster: FakeCluster) -> None:
    experiment = make_experiment(store, tmp_path)
    cluster.refusal = (422, 'Pod "x" is invalid: spec.tolerations[0].operator: Invalid value')
    assert experiment.run() is State.PAUSED
    assert 'Kubernetes refuses the pod: Pod "x" is invalid: spec.tolerations' in experiment.error


def test_secrets_are_not_in_the_manifest(store: TrackingStore, tmp_path: Path, cluster: FakeCluster) -> None:
    variables = ["DB_PASSWORD=hunter2-hunter2", "PLAIN=plain-value"]
    experiment = DisturbedExperiment(
        store, tmp_path, {"type": "kubernetes"}, environment={"image": IMAGE, "environment_variables": variables}
    )
    experiment.release.touch()
    assert experiment.run() is State.COMPLETED, experiment.describe()
    assert cluster.created
    assert not [value for value in ("hunter2", "plain-value", "main.py") if value in str(cluster.created)]


@pytest.mark.soak
def test_the_runner_is_killed(experiment: DisturbedExperiment, cluster: FakeCluster) -> None:
    with experiment.start_runner() as runner:
        try:
            worker = experiment.wait_for_worker()
        finally:
            runner.kill()
    experiment.wait_for(lambda: not cluster.pods, "end of the pods")
    assert not psutil.pid_exists(worker.pid)
    experiment.run()
    experiment.require_undisturbed_result()


@pytest.mark.soak
def test_a_pod_that_waits_is_withdrawn_with_its_runner(
    store: TrackingStore, tmp_path: Path, cluster: FakeCluster
) -> None:
    experiment = make_experiment(store, tmp_path, options={"resources": {"cpu": 64}})
    with experiment.start_runner() as runner:
        try:
            experiment.wait_for_placement("Unschedulable")
        finally:
            runner.kill()
    experiment.wait_for(lambda: not cluster.pods, "end of the pods")


def test_the_api_server_is_away_for_a_moment(store: TrackingStore, tmp_path: Path, cluster: FakeCluster) -> None:
    """A launch that waits shows it, and goes on."""
    experiment = make_experiment(store, tmp_path, options={"resources": {"cpu": 2}})
    experiment.release.touch()

    def restart() -> None:
        experiment.wait_for_placement("Unschedulable")
        cluster.is_down = True
        experiment.wait_for_placement("connection refused")
        cluster.is_down = False
        cluster.set_node("node-a", 2)

    assert experiment.run(restart) is State.COMPLETED, experiment.describe()
