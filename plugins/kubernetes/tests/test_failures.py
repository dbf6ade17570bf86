"""Each failure ends as documented, and the trial continues to the undisturbed result.

Tests with the fixture ``fake`` need a stand-in that does what they want. The others run on a real cluster, too, and
`test_real_cluster.py` has those for which a real one is needed.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from det_testing.disturbed_experiment import SECONDS, DisturbedExperiment, find_ancestor
from experiments import make_experiment, run_end, wait_until_it_trains
from fake_cluster import FakeCluster
from real_cluster import RealCluster

from det_core.interfaces.records import REQUESTS, State
from det_core.interfaces.tracking import TrackingStore
from tests.engine_fixtures import KILLS_BELOW_THE_AGENT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(280)]

Cluster = FakeCluster | RealCluster
MakeExperiment = Callable[..., DisturbedExperiment]


@pytest.fixture
def make(store: TrackingStore, tmp_path: Path, cluster: Cluster) -> MakeExperiment:
    """Return a function that makes an experiment, from the options of the launcher and further keys of the config."""

    def make(options: Any = (), **keys: Any) -> DisturbedExperiment:
        keys.setdefault("environment", cluster.environment)
        return make_experiment(store, tmp_path, options, max_restarts=1, **keys)

    return make


def test_a_deleted_pod_saves_a_checkpoint(make: MakeExperiment, cluster: Cluster) -> None:
    experiment = make()

    def delete() -> None:
        wait_until_it_trains(experiment)
        cluster.delete(*cluster.names())

    experiment.run(delete)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)
    assert re.search(r"exited with code 0 \(preempted: det-\S+-0 was deleted\)", run_end(experiment))
    assert "after 5 batches" in experiment.describe()


@pytest.mark.parametrize(
    ("text", "index", "restarts"),
    [*KILLS_BELOW_THE_AGENT, pytest.param("_surviving_agent", 0, 0, id="agent", marks=pytest.mark.soak)],
)
def test_a_process_of_the_pod_is_killed(
    make: MakeExperiment, fake: FakeCluster, text: str, index: int, restarts: int
) -> None:
    experiment = make()
    experiment.run(lambda: find_ancestor(experiment.wait_for_worker(), text, index).kill())
    experiment.require_undisturbed_result(restarts=restarts, interruptions=1 - restarts)


def test_a_pod_without_memory_is_named(make: MakeExperiment, fake: FakeCluster) -> None:
    experiment = make()

    def kill() -> None:
        wait_until_it_trains(experiment)
        ended = {"name": "determined-container", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
        fake.set_status(*fake.names(), kill=True, phase="Failed", containerStatuses=[ended])

    experiment.run(kill)
    experiment.require_undisturbed_result(restarts=1, interruptions=0)
    assert re.search(r"\(out of memory: det-\S+-0: OOMKilled\)", run_end(experiment))


def test_a_lost_node_is_named(make: MakeExperiment, fake: FakeCluster) -> None:
    experiment = make()

    def lose() -> None:
        wait_until_it_trains(experiment)
        (name,) = fake.names()
        fake.record_event(name, "NodeNotReady", "Node is not ready")
        fake.set_status(name, kill=True)

    experiment.run(lose)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)
    assert re.search(r"\(node lost: det-\S+-0: NodeNotReady: Node is not ready\)", run_end(experiment))


def test_an_image_that_is_not_there_pauses_the_experiment(
    make: MakeExperiment, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_kubernetes._pod_job._IMAGE_SECONDS", 6.0)
    experiment = make(environment={**cluster.environment, "image": cluster.missing_image})
    assert experiment.run(lambda: experiment.wait_for_placement("ErrImagePull|ImagePullBackOff")) is State.PAUSED
    assert re.search("the image cannot be pulled: (ErrImagePull|ImagePullBackOff): .+", experiment.error)
    assert experiment.trial.restarts == 0


def test_a_pod_waits_for_a_node(make: MakeExperiment, store: TrackingStore) -> None:
    experiment = make({"resources": {"cpu": 64}})

    def pause() -> None:
        assert re.search(
            r"0/\d nodes are available: .*Insufficient cpu", experiment.wait_for_placement("Unschedulable")
        )
        store.set_experiment_state(experiment.id, State.STOPPING_KILLED)

    assert experiment.run(pause) is State.CANCELED, experiment.describe()


def test_pods_wait_for_quota(make: MakeExperiment, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_kubernetes._pod_job._QUOTA_SECONDS", 0.2)
    experiment = make()
    experiment.release.touch()
    fake.refusal = (403, 'pods "x" is forbidden: exceeded quota: small, requested: pods=1, limited: pods=0')

    def allow() -> None:
        experiment.wait_for_placement("exceeded quota: small")
        fake.refusal = None

    assert experiment.run(allow) is State.COMPLETED, experiment.describe()
    assert experiment.trial.restarts == experiment.trial.interruptions == 0


def test_a_refused_pod_pauses_the_experiment(make: MakeExperiment, cluster: Cluster) -> None:
    manifest = cluster.environment.get("pod_spec", {}).get("spec", {})
    wrong = {"spec": {**manifest, "tolerations": [{"key": "gpu", "operator": "Sometimes"}]}}
    experiment = make(environment={**cluster.environment, "pod_spec": wrong})
    if isinstance(cluster, FakeCluster):
        cluster.refusal = (422, 'Pod "x" is invalid: spec.tolerations[0].operator: Unsupported value: "Sometimes"')
    assert experiment.run() is State.PAUSED
    assert re.search(r'Kubernetes refuses the pod: Pod ".+" is invalid: spec.tolerations\[0\]', experiment.error)


def test_secrets_are_not_in_the_manifest(make: MakeExperiment, cluster: Cluster) -> None:
    variables = ["DB_PASSWORD=hunter2-hunter2", "PLAIN=plain-value"]
    experiment = make(environment={**cluster.environment, "environment_variables": variables})
    manifests: list[str] = []

    def look() -> None:
        wait_until_it_trains(experiment)
        manifests.append(cluster.manifests())
        experiment.release.touch()

    assert experiment.run(look) is State.COMPLETED, experiment.describe()
    assert manifests
    assert not [value for value in ("hunter2", "plain-value", "main.py") if value in manifests[0]]


def test_the_api_server_is_away_for_a_moment(make: MakeExperiment, fake: FakeCluster) -> None:
    """A launch that waits shows it, and goes on."""
    experiment = make({"resources": {"cpu": 2}})
    experiment.release.touch()

    def restart() -> None:
        experiment.wait_for_placement("Unschedulable")
        fake.is_down = True
        experiment.wait_for_placement("connection refused")
        fake.is_down = False
        fake.set_node("node-a", 2)

    assert experiment.run(restart) is State.COMPLETED, experiment.describe()


def test_the_next_runner_adopts_the_run_of_a_killed_one(make: MakeExperiment, cluster: Cluster) -> None:
    """The worker trains on, also while there is no runner, and each of its reports arrives once."""
    experiment = make()
    kill_runner(experiment)
    experiment.release.touch()
    assert experiment.run() is State.COMPLETED, experiment.describe()
    experiment.require_undisturbed_result(restarts=0, interruptions=0)
    assert [run.run_id for run in experiment.store.runs(experiment.trial.id)] == [1], experiment.describe()
    assert "run 1 of trial 1 goes on with another runner" in experiment.lines()
    assert experiment.store.run(experiment.trial.id, 1).exit_code == 0


def test_a_run_outlives_a_runner_that_is_killed_before_it_has_adopted(make: MakeExperiment, fake: FakeCluster) -> None:
    """Until the API server answers, the run is neither given up nor removed."""
    experiment = make()
    kill_runner(experiment)
    fake.is_down = True
    with experiment.start_runner() as runner:
        try:
            experiment.wait_for_placement("connection refused")
        finally:
            runner.kill()
    fake.is_down = False
    experiment.release.touch()
    assert experiment.run() is State.COMPLETED, experiment.describe()
    assert [run.run_id for run in experiment.store.runs(experiment.trial.id)] == [1], experiment.describe()


@pytest.mark.soak
def test_a_deleted_pod_saves_its_checkpoint_with_the_next_runner(make: MakeExperiment, cluster: Cluster) -> None:
    experiment = make()
    kill_runner(experiment)
    cluster.delete(*cluster.names())
    assert experiment.run() is State.COMPLETED, experiment.describe()
    experiment.require_undisturbed_result(restarts=0, interruptions=1)
    assert "after 5 batches" in experiment.describe()


@pytest.mark.soak
def test_a_frozen_runner_changes_nothing_after_an_adoption(make: MakeExperiment, cluster: Cluster) -> None:
    experiment = make()
    with experiment.start_runner() as frozen:
        try:
            freeze(experiment, frozen)

            def wake() -> None:
                experiment.wait_for(lambda: any("goes on with" in line for line in experiment.lines()), "adoption")
                frozen.send_signal(signal.SIGCONT)
                frozen.wait(SECONDS)
                experiment.release.touch()

            assert experiment.run(wake) is State.COMPLETED, experiment.describe()
        finally:
            frozen.kill()
    experiment.require_undisturbed_result(restarts=0, interruptions=0)
    assert [run.run_id for run in experiment.store.runs(experiment.trial.id)] == [1], experiment.describe()


@pytest.mark.soak
@pytest.mark.parametrize("moment", ["during", "after"])
@pytest.mark.parametrize("request_", [State.PAUSED, State.STOPPING_CANCELED, State.STOPPING_KILLED])
def test_a_run_is_stopped_while_it_is_adopted(
    make: MakeExperiment, fake: FakeCluster, moment: str, request_: State
) -> None:
    """Workers save a checkpoint, unless they are killed, and no pod is left."""
    experiment = make()
    kill_runner(experiment)
    fake.is_down = moment == "during"

    def stop() -> None:
        if moment == "during":
            experiment.wait_for_placement("connection refused")
        else:
            experiment.wait_for(lambda: any("goes on with" in line for line in experiment.lines()), "adoption")
        experiment.store.set_experiment_state(experiment.id, request_)
        fake.is_down = False

    assert experiment.run(stop) is REQUESTS[request_], experiment.describe()
    steps = [one.steps_completed for one in experiment.store.checkpoints(trial_id=experiment.trial.id)]
    assert (5 in steps) is (request_ is not State.STOPPING_KILLED), experiment.describe()
    assert len(experiment.store.runs(experiment.trial.id)) == 1, experiment.describe()


def test_a_run_is_not_adopted_without_its_agent(make: MakeExperiment, cluster: Cluster) -> None:
    """The trial starts again from its last checkpoint, which is no interruption, as after any end of a runner."""
    experiment = make({"reconnect_timeout": 0})
    kill_runner(experiment)
    assert experiment.run() is State.COMPLETED, experiment.describe()
    experiment.require_undisturbed_result(restarts=0, interruptions=0)
    assert len(experiment.store.runs(experiment.trial.id)) == 2, experiment.describe()


def kill_runner(experiment: DisturbedExperiment) -> None:
    """Run the experiment in a process until its trial waits, and kill the process."""
    with experiment.start_runner() as runner:
        try:
            wait_until_it_trains(experiment)
        finally:
            runner.kill()


@pytest.mark.soak
def test_a_frozen_runner_that_wakes_before_an_adoption_ends_nothing(make: MakeExperiment, fake: FakeCluster) -> None:
    """It has lost the experiment, but nobody has its pods yet."""
    experiment = make()
    with experiment.start_runner() as frozen:
        try:
            freeze(experiment, frozen)
            fake.is_down = True

            def wake() -> None:
                experiment.wait_for_placement("connection refused")
                frozen.send_signal(signal.SIGCONT)
                frozen.wait(SECONDS)
                fake.is_down = False
                experiment.release.touch()

            assert experiment.run(wake) is State.COMPLETED, experiment.describe()
        finally:
            frozen.kill()
    experiment.require_undisturbed_result(restarts=0, interruptions=0)
    assert [run.run_id for run in experiment.store.runs(experiment.trial.id)] == [1], experiment.describe()


def freeze(experiment: DisturbedExperiment, runner: subprocess.Popen[bytes]) -> None:
    """Freeze a runner once its trial waits, until its lease has expired."""
    wait_until_it_trains(experiment)
    runner.send_signal(signal.SIGSTOP)
    holder = experiment.store.lease_holder(experiment.id)
    assert holder
    experiment.store.release_lease(experiment.id, holder)


@pytest.mark.soak
def test_a_pod_that_waits_is_withdrawn_with_its_runner(make: MakeExperiment, cluster: Cluster) -> None:
    experiment = make({"resources": {"cpu": 64}})
    with experiment.start_runner() as runner:
        try:
            experiment.wait_for_placement("Unschedulable")
        finally:
            runner.kill()
    experiment.wait_for(lambda: not cluster.names(), "end of the pods")
