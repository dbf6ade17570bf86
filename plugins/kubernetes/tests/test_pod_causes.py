"""What Kubernetes says about a pod becomes a cause and a line for users."""

from __future__ import annotations

from typing import Any

import pytest
from det_kubernetes._pod_causes import explain_end, explain_wait, find_cause
from det_kubernetes._pod_specs import CONTAINER

from det_core.interfaces.launcher import Cause


def make_pod(state: dict[str, Any] | None = None, *, deleted: bool = False, **status: Any) -> dict[str, Any]:
    if state:
        status["containerStatuses"] = [{"name": "sidecar", "state": {}}, {"name": CONTAINER, "state": state}]
    limits = {"resources": {"limits": {"memory": "1Gi"}}}
    return {
        "metadata": {"name": "p", **({"deletionTimestamp": "now"} if deleted else {})},
        "spec": {"containers": [{"name": CONTAINER, **limits}]},
        "status": status,
    }


def disrupted(reason: str) -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "preempting\nto make room"}
    return make_pod(conditions=[condition], deleted=True)


OUT_OF_MEMORY = make_pod({"terminated": {"reason": "OOMKilled", "exitCode": 137}}, phase="Failed")
EVICTED = make_pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory. ")
EVENT = {"type": "Warning", "reason": "Preempted", "message": "Preempted by ns/urgent on node n1"}


@pytest.mark.parametrize(
    ("pod", "events", "cause", "message"),
    [
        (OUT_OF_MEMORY, [], Cause.OUT_OF_MEMORY, "p: OOMKilled, memory limit 1Gi"),
        (EVICTED, [], Cause.PREEMPTED, "p: Evicted: The node was low on resource: memory."),
        (make_pod(phase="Failed", reason="DeadlineExceeded"), [], Cause.TIME_LIMIT, "p: DeadlineExceeded"),
        (make_pod(phase="Failed", reason="Terminated"), [], Cause.PREEMPTED, "p: Terminated"),
        (make_pod(reason="NodeLost", deleted=True), [], Cause.NODE_LOST, "p: NodeLost"),
        (
            disrupted("PreemptionByScheduler"),
            [],
            Cause.PREEMPTED,
            "p: PreemptionByScheduler: preempting to make room",
        ),
        (disrupted("DeletionByPodGC"), [], Cause.NODE_LOST, "p: DeletionByPodGC: preempting to make room"),
        (make_pod(deleted=True), [EVENT], Cause.PREEMPTED, "p: Preempted: Preempted by ns/urgent on node n1"),
        (
            make_pod(),
            [{"reason": "NodeNotReady", "message": "Node is not ready"}],
            Cause.NODE_LOST,
            "p: NodeNotReady: Node is not ready",
        ),
        (make_pod(deleted=True), [{"reason": "Killing", "message": "Stopping"}], Cause.PREEMPTED, "p was deleted"),
    ],
)
def test_an_end_has_a_cause(pod: dict[str, Any], events: list[dict[str, Any]], cause: Cause, message: str) -> None:
    assert find_cause(pod, events, is_gone=False) == (cause, message)


def test_a_pod_that_is_gone_was_deleted() -> None:
    assert find_cause(make_pod({"running": {}}), [], is_gone=True) == (Cause.PREEMPTED, "p was deleted")


def test_a_pod_that_runs_has_no_cause() -> None:
    assert find_cause(make_pod({"running": {}}, phase="Running"), [{"reason": "Started"}], is_gone=False) is None


UNPLACED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}
NOT_MOUNTED = {"type": "Warning", "reason": "FailedMount", "message": 'secret "x"\n not found'}
CREATING = {"waiting": {"reason": "ContainerCreating"}}


@pytest.mark.parametrize(
    ("pod", "events", "expected"),
    [
        (make_pod(phase="Pending"), [], "waiting for a node"),
        (make_pod(conditions=[UNPLACED]), [], "Unschedulable: 0/2 nodes are available"),
        (make_pod(CREATING), [], "ContainerCreating"),
        (
            make_pod(CREATING),
            [{"type": "Normal", "reason": "Pulling"}, NOT_MOUNTED],
            'FailedMount: secret "x" not found',
        ),
        (
            make_pod({"waiting": {"reason": "ErrImagePull", "message": "no\nhost"}}),
            [NOT_MOUNTED],
            "ErrImagePull: no host",
        ),
    ],
)
def test_a_wait_has_a_reason(pod: dict[str, Any], events: list[dict[str, Any]], expected: str) -> None:
    assert explain_wait(pod, events) == expected


def test_an_end_before_the_start_is_explained() -> None:
    refused = make_pod(phase="Failed", reason="OutOfcpu", message="Pod Node didn't have enough resource: cpu")
    assert explain_end(refused) == "p: OutOfcpu: Pod Node didn't have enough resource: cpu"
    assert explain_end(make_pod({"terminated": {"reason": "Error", "exitCode": 127}})) == "p: Error"
