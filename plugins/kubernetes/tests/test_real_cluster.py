"""What only a real cluster does, when ``DET_TEST_KUBECONFIG`` is set (`real_cluster`)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from det_kubernetes._pod_specs import CONTAINER
from det_testing.disturbed_experiment import DisturbedExperiment
from experiments import make_experiment, run_end, wait_until_it_trains
from real_cluster import KUBECONFIG, RealCluster

from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore

if not KUBECONFIG:
    pytest.skip("DET_TEST_KUBECONFIG is not set", allow_module_level=True)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(500)]

ROLE = Path(__file__).parents[1] / "role.yaml"
MakeExperiment = Callable[..., DisturbedExperiment]


@pytest.fixture
def make(store: TrackingStore, tmp_path: Path, real: RealCluster) -> MakeExperiment:
    """Return a function that makes an experiment, from the options of the launcher and keys of its container or pod."""

    def make(
        options: Any = (), *, image: str = "", container: Any = (), pod: Any = (), **keys: Any
    ) -> DisturbedExperiment:
        environment = json.loads(json.dumps(real.environment))
        environment["image"] = image or environment["image"]
        spec = environment.setdefault("pod_spec", {}).setdefault("spec", {})
        spec.update(dict(pod))
        containers = spec.setdefault("containers", [{"name": CONTAINER}])
        containers[0].update(dict(container))
        return make_experiment(store, tmp_path, options, environment=environment, **{"max_restarts": 1, **keys})

    return make


def wait_for_reconnection(experiment: DisturbedExperiment) -> None:
    """Wait until the log says that the connection is back, and let the trial go on."""
    experiment.wait_for(
        lambda: any("connected to" in line and "again" in line for line in experiment.lines()), "connection"
    )
    experiment.release.touch()


def tell(experiment: DisturbedExperiment) -> None:
    """Print what users see about the ends of runs."""
    print(*[line for line in experiment.lines() if re.match(r"run \d+ of|.*connect", line)], experiment.error, sep="\n")


def test_a_pod_above_its_memory_limit_is_named(make: MakeExperiment, real: RealCluster) -> None:
    """Its process fills the memory of the container, and the kernel kills one of its processes."""
    fill = "import time; kept = bytearray(1 << 30); kept[::4096] = b'x' * (1 << 18); time.sleep(60)"
    options = {"resources": {"cpu": "100m", "memory": "200Mi"}}
    experiment = make(options, max_restarts=0, entrypoint=["python3", "-c", fill])
    experiment.run()
    tell(experiment)
    assert "out of memory" in experiment.error


def test_an_eviction_saves_a_checkpoint(make: MakeExperiment, real: RealCluster) -> None:
    """``kubectl drain`` and the handlers of spot notices evict pods."""
    experiment = make()

    def evict() -> None:
        wait_until_it_trains(experiment)
        (name,) = real.names()
        eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name}}
        real.kubectl("create", "--raw", f"/api/v1/namespaces/default/pods/{name}/eviction", "-f", "-", given=eviction)

    experiment.run(evict)
    tell(experiment)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)
    assert "exited with code 0 (preempted: " in run_end(experiment)


def test_a_deadline_of_the_pod_is_a_time_limit(make: MakeExperiment, real: RealCluster) -> None:
    experiment = make(pod={"activeDeadlineSeconds": 20})
    experiment.run(lambda: wait_until_it_trains(experiment))
    tell(experiment)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)
    assert "(time limit: " in run_end(experiment) and "DeadlineExceeded" in run_end(experiment)


def test_a_more_urgent_pod_preempts_the_trial(make: MakeExperiment, real: RealCluster) -> None:
    allocatable = json.loads(real.kubectl("get", "nodes", "-o", "json"))["items"][0]["status"]["allocatable"]["cpu"]
    most = f"{int(float(allocatable) * 1000) - 200}m"
    urgent = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "urgent", "labels": {}},
        "spec": {
            "priorityClassName": "det-test-urgent",
            "terminationGracePeriodSeconds": 1,
            "hostNetwork": True,
            "containers": [{"name": "a", "image": "det.local/pause:1", "resources": {"requests": {"cpu": most}}}],
        },
    }
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "det-test-urgent"},
        "value": 1000,
    }
    experiment = make({"resources": {"cpu": most}})

    def preempt() -> None:
        wait_until_it_trains(experiment)
        with real.created(urgent):
            experiment.wait_for(lambda: experiment.trial.interruptions, "interruption")
            experiment.wait_for_placement("Unschedulable")
        experiment.wait_for(lambda: experiment.trial.state is State.COMPLETED, "end of the trial")

    with real.created(priority):
        experiment.run(preempt)
    tell(experiment)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)
    assert re.search(r"\(preempted: det-\S+: Preempted: .*urgent", run_end(experiment))


def test_pods_wait_for_quota(make: MakeExperiment, real: RealCluster) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "det-test"},
        "spec": {"hard": {"pods": "0"}},
    }
    experiment = make()
    experiment.release.touch()

    def allow() -> None:
        with real.created(quota):
            print(experiment.wait_for_placement("exceeded quota: det-test"))

    experiment.run(allow)
    assert experiment.store.experiment(experiment.id).state is State.COMPLETED, experiment.describe()


@pytest.mark.parametrize(
    ("image", "container", "expected"),
    [
        ("det.local/none:1", {"imagePullPolicy": "Never"}, "ErrImageNeverPull"),
        ("Not A Name", {}, "InvalidImageName"),
        ("", {"envFrom": [{"secretRef": {"name": "det-no-such-secret"}}]}, "CreateContainerConfigError"),
    ],
)
def test_a_container_that_cannot_start_pauses_the_experiment(
    make: MakeExperiment, image: str, container: dict[str, Any], expected: str
) -> None:
    experiment = make(image=image, container=container)
    assert experiment.run() is State.PAUSED, experiment.describe()
    tell(experiment)
    assert f"the container of the pod cannot be started: {expected}: " in experiment.error


def test_a_killed_connection_changes_nothing(make: MakeExperiment, real: RealCluster) -> None:
    experiment = make()

    def kill() -> None:
        wait_until_it_trains(experiment)
        (name,) = real.names()
        subprocess.run(["pkill", "-KILL", "-f", f"kubectl exec --stdin .*{name}"], check=True)
        wait_for_reconnection(experiment)

    experiment.run(kill)
    tell(experiment)
    experiment.require_undisturbed_result(restarts=0, interruptions=0)


def test_a_restart_of_the_api_server_changes_nothing(make: MakeExperiment, real: RealCluster) -> None:
    experiment = make()

    def restart() -> None:
        wait_until_it_trains(experiment)
        real.kill("apiserver")
        print(experiment.wait_for_placement("no connection to"))
        real.start("apiserver")
        wait_for_reconnection(experiment)

    experiment.run(restart)
    tell(experiment)
    experiment.require_undisturbed_result(restarts=0, interruptions=0)


def test_a_restart_of_the_kubelet_changes_nothing(make: MakeExperiment, real: RealCluster) -> None:
    experiment = make()

    def restart() -> None:
        wait_until_it_trains(experiment)
        real.kill("kubelet")
        time.sleep(2)
        real.start("kubelet")
        wait_for_reconnection(experiment)

    experiment.run(restart)
    tell(experiment)
    experiment.require_undisturbed_result(restarts=0, interruptions=0)


def test_a_lost_node_is_named(make: MakeExperiment, real: RealCluster) -> None:
    """The kubelet is gone for longer than the workers outlive the connection."""
    experiment = make({"reconnect_timeout": 20})

    def lose() -> None:
        wait_until_it_trains(experiment)
        real.kill("kubelet")
        experiment.wait_for(lambda: experiment.trial.interruptions, "interruption")
        print(experiment.wait_for_placement("queued"))
        real.start("kubelet")
        experiment.wait_for(lambda: experiment.trial.state is State.COMPLETED, "end of the trial")

    experiment.run(lose)
    tell(experiment)
    experiment.require_undisturbed_result(restarts=0, interruptions=1)
    assert "(node lost: " in run_end(experiment)


def test_the_role_is_enough(
    make: MakeExperiment, real: RealCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search runs with it, and ``det doctor`` names what is missing without it."""
    manifests = ROLE.read_text(encoding="utf-8").replace("namespace: training", "namespace: default")
    account, role, binding = yaml.safe_load_all(manifests)
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}
    blocks = {"searcher": searcher, "launcher": {"type": "kubernetes"}, "environment": dict(real.environment)}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"entrypoint": "true", **blocks}), encoding="utf-8")
    experiment = make()
    experiment.release.touch()
    with real.created(account):
        token = real.kubectl("create", "token", account["metadata"]["name"]).strip()
        limited = yaml.safe_load(Path(KUBECONFIG or "").read_text(encoding="utf-8"))
        limited["users"] = [{"name": limited["users"][0]["name"], "user": {"token": token}}]
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(limited), encoding="utf-8")

        def as_account(act: Callable[[], Any]) -> Any:
            with monkeypatch.context() as patch:
                patch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
                return act()

        refused = as_account(lambda: doctor(config))
        print(refused["detail"])
        assert "this user may not create pods, " in refused["detail"]
        with real.created(role), real.created(binding):
            allowed = as_account(lambda: doctor(config))
            print(allowed["detail"])
            assert allowed["ok"], allowed
            assert as_account(experiment.run) is State.COMPLETED, experiment.describe()


def doctor(config: Path) -> dict[str, Any]:
    """Return what ``det doctor`` says about the launcher."""
    command = [sys.executable, "-m", "det_core.cli", "doctor", "--json", str(config)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200)
    (check,) = [one for one in json.loads(ran.stdout)["checks"] if one["check"] == "launcher"]
    return dict(check)
