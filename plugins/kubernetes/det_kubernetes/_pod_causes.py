"""Causes and explanations of what happens to pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from det_core.interfaces.launcher import Cause
from det_kubernetes._pod_specs import CONTAINER, Manifest

_STATUS_REASONS = {
    "DeadlineExceeded": Cause.TIME_LIMIT,
    "Evicted": Cause.PREEMPTED,
    "NodeLost": Cause.NODE_LOST,
    "NodeShutdown": Cause.PREEMPTED,
    "Preempting": Cause.PREEMPTED,
    "Shutdown": Cause.PREEMPTED,
    "Terminated": Cause.PREEMPTED,
}
"""Causes by ``status.reason`` of a pod that has failed."""
_DISRUPTIONS = {
    "DeletionByPodGC": Cause.NODE_LOST,
    "DeletionByTaintManager": Cause.NODE_LOST,
    "EvictionByEvictionAPI": Cause.PREEMPTED,
    "PreemptionByScheduler": Cause.PREEMPTED,
    "TerminationByKubelet": Cause.PREEMPTED,
}
"""Causes by the reason of the condition ``DisruptionTarget``, from Kubernetes 1.26 on."""
_EVENTS = {
    "Evicted": Cause.PREEMPTED,
    "NodeNotReady": Cause.NODE_LOST,
    "Preempted": Cause.PREEMPTED,
    "TaintManagerEviction": Cause.NODE_LOST,
}
"""Causes by the reason of an event of a pod."""
_KILLED_FOR_MEMORY = "OOMKilled"
REFUSED = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "InvalidImageName",
    "RunContainerError",
)
"""Reasons for which the container of a pod waits until somebody changes something."""
IMAGE_PROBLEMS = ("ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable")
"""Reasons for which the container of a pod waits that may pass."""
_UNPLACED = "Unschedulable"


def find_cause(pod: Manifest, events: Sequence[Manifest], *, is_gone: bool) -> tuple[Cause, str] | None:
    """Return why Kubernetes has ended the processes of a pod with its explanation, or None if it has not.

    Args:
        pod: last known state of the pod.
        events: its events, the oldest first.
        is_gone: whether the pod is not there any more.
    """
    name, status = pod["metadata"]["name"], pod.get("status", {})
    for ended in (one for one in _ends(pod) if one.get("reason") == _KILLED_FOR_MEMORY):
        limit = _memory_limit(pod)
        return Cause.OUT_OF_MEMORY, f"{name}: {ended['reason']}" + (f", memory limit {limit}" if limit else "")
    if cause := _STATUS_REASONS.get(status.get("reason", "")):
        return cause, _explain(name, status)
    for condition in status.get("conditions", ()):
        if condition["type"] == "DisruptionTarget" and condition.get("reason") in _DISRUPTIONS:
            return _DISRUPTIONS[condition["reason"]], _explain(name, condition)
    for event in reversed(events):
        if cause := _EVENTS.get(event.get("reason", "")):
            return cause, _explain(name, event)
    if is_gone or "deletionTimestamp" in pod["metadata"]:
        return Cause.PREEMPTED, f"{name} was deleted"
    return None


def has_ended(pod: Manifest) -> bool:
    """Return whether a pod will run no more. The control plane may say so while its node does not answer."""
    return has_no_process(pod) or pod.get("status", {}).get("phase") in ("Failed", "Succeeded")


def has_no_process(pod: Manifest) -> bool:
    """Return whether no process of the trial is left in a pod, as its node says."""
    return bool(_ends(pod))


def is_running(pod: Manifest) -> bool:
    """Return whether the trial's container of a pod runs."""
    return any("running" in one.get("state", {}) for one in _container_statuses(pod))


def is_placed(pod: Manifest) -> bool:
    """Return whether a pod has a node."""
    return "nodeName" in pod["spec"]


def is_unplaced(pod: Manifest) -> bool:
    """Return whether the scheduler has found no node for a pod."""
    return not is_placed(pod) and any(
        one.get("reason") == _UNPLACED for one in pod.get("status", {}).get("conditions", ())
    )


def waiting_reason(pod: Manifest) -> tuple[str, str]:
    """Return the reason and the message of a container that waits, or empty texts."""
    for one in _container_statuses(pod, also_others=True):
        if waiting := one.get("state", {}).get("waiting"):
            return waiting.get("reason", ""), _one_line(waiting.get("message", ""))
    return "", ""


def explain_wait(pod: Manifest, events: Sequence[Manifest] = ()) -> str:
    """Return in one line why a pod does not run yet.

    Args:
        pod: state of the pod.
        events: its events, the oldest first.
    """
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return _explain(condition.get("reason", ""), {"message": condition.get("message", "")})
    reason, message = waiting_reason(pod)
    warnings = [event for event in events if event.get("type") == "Warning"]
    if warnings and not message:
        return _explain(warnings[-1].get("reason", ""), {"message": warnings[-1].get("message", "")})
    return f"{reason}: {message}" if message else reason or "waiting for a node"


def explain_end(pod: Manifest) -> str:
    """Return in one line why a pod has ended before its processes were started."""
    status = pod.get("status", {})
    ended = next((one for one in _ends(pod) if one), {})
    return _explain(pod["metadata"]["name"], status if status.get("reason") else ended)


def _explain(name: str, source: Mapping[str, Any]) -> str:
    details = [_one_line(str(source.get(field) or "")) for field in ("reason", "message")]
    return ": ".join(filter(None, (name, *details)))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _container_statuses(pod: Manifest, *, also_others: bool = False) -> list[Mapping[str, Any]]:
    status = pod.get("status", {})
    mine = [one for one in status.get("containerStatuses", ()) if one["name"] == CONTAINER]
    others = [one for one in status.get("containerStatuses", ()) if one["name"] != CONTAINER]
    return [*status.get("initContainerStatuses", ()), *mine, *others] if also_others else mine


def _ends(pod: Manifest) -> list[Mapping[str, Any]]:
    """Return how the containers of a pod have ended, as far as they have."""
    statuses = _container_statuses(pod)
    return [
        one[state]["terminated"]
        for one in statuses
        for state in ("state", "lastState")
        if "terminated" in one.get(state, {})
    ]


def _memory_limit(pod: Manifest) -> str:
    limits = [
        one.get("resources", {}).get("limits", {}) for one in pod["spec"]["containers"] if one["name"] == CONTAINER
    ]
    return next((limit["memory"] for limit in limits if "memory" in limit), "")
