"""The pods of a launch start together, or give up their nodes for an older launch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from det_kubernetes import _pod_job
from det_kubernetes._config import ClaimedKeys, KubernetesConfig
from det_kubernetes._launcher import KubernetesLauncher
from fake_cluster import FakeCluster

from det_core.interfaces.launcher import Allocation, Cause, Exit, LaunchRequest, Phase
from det_core.launch.context_archive import EMPTY_CONTEXT

pytestmark = pytest.mark.integration

_SECONDS = 30.0
Start = Callable[[str, float], Allocation]


@pytest.fixture
def start(fake: FakeCluster) -> Iterator[Start]:
    """Return a function that starts a launch of two pods, from a key and the number of cores of each."""
    with ExitStack() as ending:

        def start(key: str, cores: float) -> Allocation:
            config = KubernetesConfig.model_validate({"slots_per_node": 1, "resources": {"cpu": cores}})
            claimed = ClaimedKeys.model_validate({"environment": {"image": "registry.invalid/det:1"}})
            launcher = ending.enter_context(closing(KubernetesLauncher(config, claimed)))
            launcher.open(key)
            info = {"cluster.json": {}, "trial.json": {"config": {}, "trial_run_id": 1}}
            values = {"info": info, "slots": 2, "log": lambda *_: None, "call": lambda *_: b""}
            request = LaunchRequest(key=f"{key}-trial-1", argv=["true"], code=EMPTY_CONTEXT, **values)
            return ending.enter_context(closing(launcher.start(request)))

        yield start


def wait_until(launch: Allocation, message: str) -> None:
    """Wait until a launch says why it waits."""
    deadline = time.monotonic() + _SECONDS
    while message not in launch.status().message:
        assert launch.wait(0.1) is None
        assert time.monotonic() < deadline, launch.status()


def test_no_pod_works_before_all_run(start: Start, fake: FakeCluster) -> None:
    fake.set_node("node-b", 0)
    launch = start("k-exp-1", 1)
    wait_until(launch, "Unschedulable: 0/2 nodes are available")
    assert launch.status().phase is Phase.QUEUED
    fake.set_node("node-b", 1)
    assert launch.wait(_SECONDS) == Exit(code=0)
    assert sorted(launch.status().nodes) == ["node-a", "node-b"]


def test_the_younger_of_two_launches_makes_way(
    start: Start, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pod_job, "_PARTIAL_SECONDS", 0.5)
    fake.set_node("node-b", 0.5)
    older = start("k-exp-1", 1)
    wait_until(older, "Unschedulable")
    time.sleep(1.1)  # the times of Kubernetes are whole seconds
    younger = start("k-exp-2", 0.5)
    wait_until(younger, "goes first")
    fake.set_node("node-b", 1)
    assert older.wait(_SECONDS) == Exit(code=0)
    older.close()
    assert younger.wait(_SECONDS) == Exit(code=0)


def test_a_launch_that_waits_for_nodes_leaves_nothing(start: Start, fake: FakeCluster) -> None:
    fake.set_node("node-b", 0)
    launch = start("k-exp-1", 1)
    wait_until(launch, "Unschedulable")
    launch.preempt()
    end = launch.wait(0)
    assert end and end.cause is Cause.NOT_STARTED
    # The fixture of the cluster waits until nothing is left.
