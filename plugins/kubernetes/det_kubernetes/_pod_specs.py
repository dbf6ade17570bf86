"""Manifests of the pods of a launch."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Manifest = dict[str, Any]

CONTAINER = "determined-container"
"""Name of the container of the trial, by which manifests in old configs refer to it."""
RUNNER, EXPERIMENT, TRIAL, LAUNCH, NODE = "det/runner", "det/experiment", "det/trial", "det/launch", "det/node"
"""Labels of all pods: ids of the runner and the launch, names of the experiment and the trial among all tracking
stores, and the index of the node."""
RUN = "det/run"
"""Label with the number of the run. Pods of earlier releases have none."""
_WAIT = """
trap 'limit=0; kill -s TERM -- -1' TERM
limit=60 idle=0
while [ $idle -le $limit ]; do
    sleep 1 & wait $!
    if kill -s 0 -- -1 2>/dev/null; then idle=0; else idle=$((idle + 1)); fi
done
"""
"""Script of process 1. It passes SIGTERM on to all processes, and ends after the last one, or if there was none for a
minute."""
_GRACE_SECONDS = 120
"""Seconds that workers have by default to save a checkpoint when their pod is deleted."""
_SHARED_MEMORY = "det-shared-memory"
_SHM = "/dev/shm"  # noqa: S108  (a mount)
_SHARED_PROCESSES = ("hostPID", "shareProcessNamespace")
_MAX_NAME = 63


@dataclass(frozen=True, kw_only=True)
class PodOptions:
    """What all pods of a launch have in common.

    Attributes:
        image: image of the trial's container, or None if the manifest names it.
        manifest: manifest of the user.
        resources: amounts of resources by name.
        shm_size: size of ``/dev/shm``, or None for no limit but the memory of the container.
        priority_class: priority class, or None.
        always_pull: whether the image is pulled for each pod.
        capabilities: Linux capabilities to ``add`` and to ``drop``.
        hides_gpus: whether processes do not see GPUs that the pod has not requested.
    """

    image: str | None
    manifest: Mapping[str, Any]
    resources: Mapping[str, str]
    shm_size: str | None = None
    priority_class: str | None = None
    always_pull: bool = False
    capabilities: Mapping[str, Sequence[str]] = field(default_factory=dict)
    hides_gpus: bool = False


def explain_unusable_manifest(manifest: Mapping[str, Any]) -> str | None:
    """Return why a manifest cannot be used, or None if it can."""
    spec = manifest.get("spec", {})
    if manifest.keys() - {"apiVersion", "kind", "metadata", "spec"} or not isinstance(spec, Mapping):
        example = "pod_spec: {spec: {nodeSelector: {gpu: a100}}}"
        return f"expected a pod with metadata and spec, such as {example}, got the keys {sorted(manifest)}"
    if found := [name for name in _SHARED_PROCESSES if spec.get(name)]:
        return f"spec.{found[0]} cannot be used, because process 1 signals all processes that it sees; omit it"
    return None


def find_image(manifest: Mapping[str, Any]) -> str | None:
    """Return the image that a manifest names for the container of the trial, or None."""
    image: str | None = _own_container(manifest.get("spec") or {}).get("image")
    return image


def build_pods(
    key: str, nodes: int, options: PodOptions, *, runner: str, experiment: str, launch: str, run: int
) -> list[Manifest]:
    """Return the manifests of the pods of a launch, one for each node.

    Args:
        key: name of the trial, unique among all tracking stores.
        nodes: number of nodes.
        options: what the pods have in common.
        runner: id of the runner.
        experiment: name of the experiment, unique among all tracking stores.
        launch: id of the launch, unique among those of the trial.
        run: number of the run of the trial.
    """
    metadata, spec = options.manifest.get("metadata") or {}, options.manifest.get("spec") or {}
    labels = {
        **(metadata.get("labels") or {}),
        "app.kubernetes.io/managed-by": "det",
        RUNNER: runner,
        EXPERIMENT: label_value(experiment),
        TRIAL: label_value(key),
        LAUNCH: launch,
        RUN: str(run),
    }
    whole = {**_complete_spec(spec, options), "restartPolicy": "Never"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **{name: value for name, value in metadata.items() if name == "annotations"},
                "name": pod_name(key, launch, node),
                "labels": {**labels, NODE: str(node)},
            },
            "spec": copy.deepcopy(whole),
        }
        for node in range(nodes)
    ]


def pod_name(key: str, launch: str, node: int) -> str:
    """Return the name of a pod, of at most 63 characters, because it is also a host name."""
    end = f"-{launch}-{node}"
    start = re.sub(r"[^a-z0-9]+", "-", f"det-{key}".lower())
    return start[: _MAX_NAME - len(end)].rstrip("-") + end


def label_value(text: str) -> str:
    """Return a text as the value of a label, unique as the text is."""
    if re.fullmatch(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", text, re.ASCII):
        return text
    return hashlib.sha256(text.encode()).hexdigest()[:_MAX_NAME]


def _complete_spec(spec: Mapping[str, Any], options: PodOptions) -> Manifest:
    """Return the spec of the user with the container of the trial in it."""
    others = [one for one in spec.get("containers") or [] if one.get("name") != CONTAINER]
    container = _complete_container(_own_container(spec), options)
    defaults: Manifest = {
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "automountServiceAccountToken": "serviceAccountName" in spec,
        "enableServiceLinks": False,
        **({"priorityClassName": options.priority_class} if options.priority_class else {}),
    }
    volumes = list(spec.get("volumes") or [])
    if not any(one.get("mountPath") == _SHM for one in container["volumeMounts"]):
        limit = {"sizeLimit": options.shm_size} if options.shm_size else {}
        volumes.append({"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory", **limit}})
        container["volumeMounts"].append({"name": _SHARED_MEMORY, "mountPath": _SHM})
    return {**defaults, **spec, "volumes": volumes, "containers": [container, *others]}


def _complete_container(given: Mapping[str, Any], options: PodOptions) -> Manifest:
    wanted = given.get("resources") or {}
    limits = {name: amount for name, amount in options.resources.items() if name != "cpu"}
    requests = {name: amount for name, amount in options.resources.items() if "/" not in name}
    chosen = {name: amount for name, amount in limits.items() if "/" in name}  # one GPU for each slot, whoever asks
    hidden = [{"name": "CUDA_VISIBLE_DEVICES", "value": ""}] if options.hides_gpus else []
    container: Manifest = {
        **given,
        "name": CONTAINER,
        "command": ["sh", "-c", _WAIT],
        "env": [*hidden, *(given.get("env") or [])],
        "resources": {
            **wanted,
            "requests": {**requests, **(wanted.get("requests") or {}), **chosen},
            "limits": {**limits, **(wanted.get("limits") or {}), **chosen},
        },
        "volumeMounts": list(given.get("volumeMounts") or []),
    }
    container.pop("args", None)
    if options.image:
        container["image"] = options.image
    if options.always_pull:
        container["imagePullPolicy"] = "Always"
    if capabilities := {name: list(names) for name, names in options.capabilities.items() if names}:
        container["securityContext"] = {**(given.get("securityContext") or {}), "capabilities": capabilities}
    return container


def _own_container(spec: Mapping[str, Any]) -> Manifest:
    """Return the container of the trial in the spec of the user, or an empty one."""
    return next((one for one in spec.get("containers") or [] if one.get("name") == CONTAINER), {})
