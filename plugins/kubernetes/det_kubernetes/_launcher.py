"""Launcher that starts trials in the pods of a cluster."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Literal

from det_cluster.engine_launch import EngineLaunch

from det_core.errors import LaunchDelayed, LaunchError, TrackingError
from det_core.interfaces.launcher import Allocation, Launcher, LaunchRequest
from det_kubernetes._api import ApiError, KubernetesApi
from det_kubernetes._config import ClaimedKeys, KubernetesConfig
from det_kubernetes._pod_job import PodJob
from det_kubernetes._pod_removal import PodRemoval
from det_kubernetes._pod_specs import EXPERIMENT, TRIAL, Manifest, PodOptions, build_pods, label_value
from det_kubernetes._pod_watch import PodWatch

OLDEST = (1, 20)
"""Oldest version of Kubernetes that the tests have seen."""
RIGHTS = (
    ("create", "pods", ""),
    ("delete", "pods", ""),
    ("list", "pods", ""),
    ("watch", "pods", ""),
    ("get", "pods", ""),
    ("patch", "pods", ""),
    ("create", "pods", "exec"),
    ("list", "events", ""),
)
"""Verb, resource and subresource of all that the launcher and ``kubectl exec`` do in the namespace."""
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class KubernetesLauncher(Launcher):
    """Launcher with a pod per node of a trial."""

    slots = None  # pods wait for their nodes

    def __init__(self, config: KubernetesConfig, claimed: ClaimedKeys) -> None:
        self._config, self._claimed = config, claimed
        self.adopts = config.reconnect_timeout > 0
        self._api = KubernetesApi(config.namespace, config.context, config.reconnect_timeout)
        self._watch = PodWatch(self._api)
        self._experiment = ""
        self._renew_lease: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._leftovers: PodRemoval | None = None
        """Removal of the pods of earlier runners, until it has been done."""

    def device(self) -> Literal["cpu", "cuda"]:
        return self._config.device()

    def rehearsal(self, slots: int) -> tuple[Launcher, int]:
        """Check the version of the cluster, and what its user may do, before the launch."""
        version = self._api.call("GET", "/version")["gitVersion"]
        found = re.match(r"v(\d+)\.(\d+)", version)
        if not found or (int(found[1]), int(found[2])) < OLDEST:
            expected = ".".join(map(str, OLDEST))
            raise LaunchError(f"the cluster has Kubernetes {version}, expected {expected} or later")
        missing = [
            f"{verb} {resource}{sub and '/'}{sub}"
            for verb, resource, sub in RIGHTS
            if not self._may(verb, resource, sub)
        ]
        if missing:
            raise LaunchError(
                f"this user may not {', '.join(missing)} in the namespace {self._api.namespace} of Kubernetes "
                f"{version}; ask for the role in plugins/kubernetes/role.yaml"
            )
        return self, slots

    def open(self, key: str, keep: Collection[str] = (), renew_lease: Callable[[], None] = lambda: None) -> None:
        """Ask for the deletion of the pods of earlier runners, whose hosts may be frozen or cut off."""
        self._experiment, self._renew_lease = key, renew_lease
        selector, kept = f"{EXPERIMENT}={label_value(key)}", set(map(label_value, keep))
        self._leftovers = PodRemoval(
            self._api,
            selector,
            self._config.reconnect_timeout,
            lambda labels: labels[TRIAL] in kept,
            require_lease=self._require_lease,
        )
        with suppress(ApiError):  # the first start tries again; adoption needs no removal
            self._remove_leftovers()

    def start(self, request: LaunchRequest) -> Allocation:
        self._remove_leftovers()
        return EngineLaunch(request, self._make_job(request))

    def adopt(self, request: LaunchRequest, number: float) -> Allocation:
        return EngineLaunch(request, self._make_job(request, adopted_as=number))

    def _require_lease(self) -> None:
        """Raise an error unless this runner still holds its experiment."""
        try:
            self._renew_lease()
        except TrackingError as error:
            raise LaunchDelayed(f"another runner may hold the experiment: {error}") from error

    def _remove_leftovers(self) -> None:
        """Ask for the deletion of the pods of earlier runners, before this one creates any."""
        with self._lock:
            if self._leftovers:
                self._leftovers.advance()
                self._leftovers = None

    def _make_job(self, request: LaunchRequest, *, adopted_as: float = 0.0) -> PodJob:
        nodes = -(-request.slots // (self._config.slots_per_node or request.slots))
        if request.slots % nodes:
            raise LaunchError(
                f"the trial needs {request.slots} slots, which {nodes} pods with up to {self._config.slots_per_node} "
                "slots cannot share equally; change resources.slots_per_trial or launcher.slots_per_node"
            )
        share, environment = request.slots // nodes, self._claimed.environment
        run: int = request.info["trial.json"]["trial_run_id"]
        options = PodOptions(
            image=environment.image_for(self.device()),
            manifest=environment.pod_spec or {},
            resources=self._config.resources_of(share),
            shm_size=self._claimed.resources.shm_size,
            priority_class=self._config.priority_class,
            always_pull=environment.force_pull_image,
            capabilities={"add": environment.add_capabilities, "drop": environment.drop_capabilities},
            hides_gpus=self.device() == "cpu",
        )

        def build(launch: str) -> Sequence[Manifest]:
            return build_pods(
                request.key,
                nodes,
                options,
                runner=self._api.runner,
                experiment=self._experiment,
                launch=launch,
                run=run,
            )

        return PodJob(
            request,
            build,
            run=run,
            cpus=self._config.cpus_of(share),
            reconnect_seconds=self._config.reconnect_timeout,
            api=self._api,
            watch=self._watch,
            require_lease=self._require_lease,
            adopted_as=adopted_as,
        )

    def close(self) -> None:
        self._api.close()

    def _may(self, verb: str, resource: str, subresource: str) -> bool:
        """Return whether the user of ``kubectl`` may do something in the namespace."""
        asked = {"namespace": self._api.namespace, "verb": verb, "resource": resource, "subresource": subresource}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        return bool(self._api.call("POST", _REVIEWS, review)["status"]["allowed"])
