"""A runner that was replaced, and wakes up, deletes no pod of the next one."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from det_kubernetes import _api
from det_kubernetes._api import KubernetesApi
from det_kubernetes._config import ClaimedKeys, KubernetesConfig
from det_kubernetes._launcher import KubernetesLauncher
from det_kubernetes._pod_removal import PodRemoval
from det_kubernetes._pod_specs import RUNNER, TRIAL, PodOptions, build_pods
from det_testing.launcher.watched_launch import refuse_calls
from fake_cluster import FakeCluster

from det_core.errors import LaunchDelayed, StaleRun
from det_core.interfaces.launcher import LaunchRequest
from det_core.launch.context_archive import EMPTY_CONTEXT
from tests.waiting import wait_for

pytestmark = pytest.mark.integration

KEY = "s-exp-3-trial-7"
OPTIONS = PodOptions(image="registry.invalid/det:1", manifest={}, resources={"cpu": "0.5"})


REQUEST = LaunchRequest(
    key=KEY,
    argv=["true"],
    code=EMPTY_CONTEXT,
    info={"cluster.json": {}, "trial.json": {"config": {}, "trial_run_id": 3}},
    slots=1,
    log=lambda *_: None,
    call=refuse_calls,
)


def be_replaced() -> None:
    raise StaleRun("another runner holds the experiment")


def create_pod(fake: FakeCluster, run: int) -> dict[str, Any]:
    """Create a pod of another runner."""
    (pod,) = build_pods(KEY, 1, OPTIONS, runner="another", experiment="s-exp-3", launch="abc", run=run)
    return fake.create(pod)


@pytest.fixture
def launcher(fake: FakeCluster) -> Iterator[KubernetesLauncher]:
    """Return a launcher that has been opened. The pods that are left at the end are forgotten."""
    claimed = ClaimedKeys.model_validate({"environment": {"image": OPTIONS.image}})
    with closing(KubernetesLauncher(KubernetesConfig(), claimed)) as launcher:
        yield launcher
    for name in fake.names():
        fake.delete(name, grace=0)


@pytest.mark.parametrize(("run", "stays"), [(2, False), (3, True), (4, True)])
def test_a_launch_of_a_replaced_runner_waits_for_the_pods_of_the_next_one(
    fake: FakeCluster, launcher: KubernetesLauncher, *, run: int, stays: bool
) -> None:
    """The next runner has adopted this run, or has started a later one."""
    launcher.open("s-exp-3")
    pod = create_pod(fake, run)
    with closing(launcher.start(REQUEST)) as launch:
        wait_for(lambda: launch.wait(0.1) or pod["metadata"]["name"] in launch.status().message)
        assert ("deletionTimestamp" in pod["metadata"]) is not stays


@pytest.mark.parametrize("change", [{RUNNER: "next"}, {"other": "label"}])
def test_a_pod_that_is_adopted_before_its_deletion_stays(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    """A pod that changes in another way is deleted."""
    created = create_pod(fake, 1)["metadata"]
    delete = KubernetesApi.delete_pod

    def change_first(api: KubernetesApi, pod: str, grace: int, *, version: str = "") -> None:
        monkeypatch.undo()
        fake.label(pod, change)
        delete(api, pod, grace, version=version)

    api = KubernetesApi("default", None)
    monkeypatch.setattr(KubernetesApi, "delete_pod", change_first)
    with closing(api):
        removal = PodRemoval(api, f"{TRIAL}={KEY}", 0.0, require_lease=lambda: None)
        assert removal.advance() == created["name"]
    assert ("deletionTimestamp" in created) is (RUNNER not in change)
    if RUNNER in change:
        fake.delete(created["name"], grace=0)


def test_a_runner_that_freezes_before_it_sees_the_pods_of_the_next_one_deletes_none(
    fake: FakeCluster, launcher: KubernetesLauncher
) -> None:
    pod = create_pod(fake, 4)
    with pytest.raises(LaunchDelayed, match="another runner may hold the experiment"):
        launcher.open("s-exp-3", [], be_replaced)
    assert "deletionTimestamp" not in pod["metadata"]


def test_a_runner_that_freezes_before_its_pods_run_starts_nothing_in_them(
    fake: FakeCluster, launcher: KubernetesLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one has not seen these pods, so it does not wait for them before it starts its own."""
    monkeypatch.setattr("det_kubernetes._pod_job.AgentGroup", None)
    launcher.open("s-exp-3", [], be_replaced)
    with closing(launcher.start(REQUEST)) as launch, pytest.raises(LaunchDelayed, match="another runner"):
        wait_for(lambda: launch.wait(0.1))


@pytest.mark.parametrize("moment", ["before it reads the pods", "before it changes them"])
def test_a_runner_that_freezes_in_an_adoption_takes_no_pod_of_the_next_one(
    fake: FakeCluster, launcher: KubernetesLauncher, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Otherwise the process beside it would delete them."""
    pod = create_pod(fake, 3)
    wait_for(lambda: fake.is_running(pod["metadata"]["name"]))
    adopt, is_replaced = KubernetesApi.adopt_pod, moment == "before it reads the pods"

    def change_first(api: KubernetesApi, found: Any) -> Any:
        nonlocal is_replaced
        is_replaced = True
        fake.label(pod["metadata"]["name"], {RUNNER: "next"})
        return adopt(api, found)

    monkeypatch.setattr(KubernetesApi, "adopt_pod", change_first)
    launcher.open("s-exp-3", [KEY], lambda: be_replaced() if is_replaced else None)
    launch = launcher.adopt(REQUEST, 7.0)
    with pytest.raises(LaunchDelayed, match="another runner"):
        wait_for(lambda: launch.wait(0.1))
    launch.hand_over()
    launch.close()
    expected = "another" if moment == "before it reads the pods" else "next"
    assert fake.pods[pod["metadata"]["name"]]["metadata"]["labels"][RUNNER] == expected


def test_a_process_that_does_not_delete_the_pods_in_time_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread that waits for it after a hand-over ends, and says which pods may be left."""
    monkeypatch.setattr(_api, "_END_SECONDS", 0.0)
    monkeypatch.setattr(_api, "seconds_until_deleted", lambda _: 0.1)
    keeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], stdin=subprocess.PIPE)
    is_handed_over = threading.Event()
    is_handed_over.set()
    with keeper, caplog.at_level(logging.WARNING):
        _api._end_keeper(keeper, is_handed_over, 600.0, "kubectl get pods --selector=det/runner=abc")
    assert keeper.returncode == -9
    assert caplog.messages == [
        "the process that deletes the pods of this runner has not ended within 0 s and was killed; pods that are left: "
        "kubectl get pods --selector=det/runner=abc"
    ]
