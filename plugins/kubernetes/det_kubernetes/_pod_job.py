"""Pods of one launch."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from det_cluster.agent_group import AGENT_COMMAND, AgentGroup
from det_cluster.engine_launch import EngineJob

from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import Cause, Exit, LaunchRequest, Phase, Status
from det_kubernetes import _pod_causes as causes
from det_kubernetes._api import ApiError, KubernetesApi
from det_kubernetes._pod_removal import PodRemoval
from det_kubernetes._pod_specs import CONTAINER, LAUNCH, NODE, RUN, RUNNER, TRIAL, Manifest, label_value
from det_kubernetes._pod_watch import PodWatch
from det_kubernetes.proxy_keeper import GRACE_SECONDS

_QUOTA = "exceeded quota"
_QUOTA_SECONDS = 10.0
"""Seconds until the next attempt to create pods for which there is no quota."""
_IMAGE_SECONDS = 60.0
"""Seconds for which an image that cannot be pulled is waited for."""
_EVENT_SECONDS = 10.0
"""Seconds between two looks at the events of a pod that does not start."""
_PARTIAL_SECONDS = 30.0
"""Seconds for which a launch keeps the nodes of some of its pods if an older launch waits in the same way, and for
which it then waits."""
_SETTLE_SECONDS = 15.0
"""Seconds within which Kubernetes says why the processes of a pod have ended."""
_TICK = 0.5


class PodJob(EngineJob):
    """Pods of a launch, one for each node.

    Args:
        request: the launch request.
        build: function that returns the manifests, from the id of an attempt to create the pods.
        run: number of the run, of which later ones and those of other runners are not removed.
        cpus: number of cores of a pod, or 0 if its share is unknown.
        reconnect_seconds: as for `AgentGroup`.
        api: the API.
        watch: states of the pods.
        require_lease: function that raises an error unless this runner still holds its experiment.
        adopted_as: number of this runner to adopt the pods that another one has created, or 0 to create them.
    """

    poll_seconds = _TICK

    def __init__(
        self,
        request: LaunchRequest,
        build: Callable[[str], Sequence[Manifest]],
        *,
        run: int,
        cpus: int,
        reconnect_seconds: float,
        api: KubernetesApi,
        watch: PodWatch,
        require_lease: Callable[[], None],
        adopted_as: float = 0.0,
    ) -> None:
        self._log = request.log
        self._adopted_as = adopted_as
        self._selector = f"{TRIAL}={label_value(request.key)}"
        self._run = run
        self._build, self._cpus, self._reconnect_seconds = build, cpus, reconnect_seconds
        self._api, self._watch, self._require_lease = api, watch, require_lease
        self._removal = PodRemoval(
            api, self._selector, reconnect_seconds, self._is_of_successor, require_lease=require_lease
        )
        self._names: Sequence[str] = ()
        self._message = "creating its pods"
        self._is_placed = False
        now = time.monotonic()
        self._adopt_until = now + reconnect_seconds
        self._create_at = self._look_at = self._image_since = self._partial_since = now

    def advance(self, request: LaunchRequest) -> AgentGroup | None:
        if self._adopted_as:
            return self._adopt(request)
        if not self._names and not self._create():
            return None
        pods = [pod for name in self._names if (pod := self._watch.find(name))]
        for pod in pods:
            self._require_hope(pod)
        waiting = [pod for pod in pods if not causes.is_running(pod)]
        if len(pods) < len(self._names):
            return None
        if not waiting:
            self._require_lease()  # so the next runner sees these pods, and starts nothing before they are gone
            return self._connect(request, pods)
        self._explain_wait(waiting[0])
        self._require_image(waiting)
        if self._makes_way(pods):
            self._delete()
            self._create_at = time.monotonic() + _PARTIAL_SECONDS
            self._message = "another trial that also needs several nodes goes first"
        return None

    def status(self) -> Status:
        names = self._names
        handle = (f"pod {names[0]}" if names else "") + (f" and {len(names) - 1} more" if names[1:] else "")
        phase = Phase.STARTING if self._is_placed or self._adopted_as else Phase.QUEUED
        return Status(phase=phase, handle=handle, message=self._watch.problem or self._message)

    def explain_end(self, end: Exit) -> Exit:
        """Return an end with the cause that Kubernetes gives, which may take some seconds to say it."""
        deadline = time.monotonic() + (_SETTLE_SECONDS if end.cause is Cause.NODE_LOST else 0.0)
        while True:
            for name in self._names:
                cause, message = self._find_cause(name) or (end.cause, "")
                if message and not (cause is Cause.NODE_LOST and end.cause is Cause.WORKERS):  # the node came back
                    return replace(end, cause=cause, message=message)
            if time.monotonic() > deadline:
                break
            time.sleep(_TICK)
        return replace(end, message="; ".join(filter(None, (end.message, self._watch.problem))))

    def find_ended_nodes(self) -> Mapping[int, Exit]:
        """Return the nodes whose containers have ended. A pod that is gone was perhaps deleted without its node."""
        ended: dict[int, Exit] = {}
        for node, name in enumerate(self._names):
            pod = self._watch.find(name)
            if pod and causes.has_no_process(pod):
                cause, message = self._find_cause(name) or (Cause.NODE_LOST, causes.explain_end(pod))
                ended[node] = Exit(code=1, cause=cause, message=message)
        return ended

    def close(self) -> None:
        try:
            if self._adopted_as and not self._names:
                self._removal.advance()
            self._delete()
        except LaunchError as error:
            self._log(None, "det", f"its pods are left, and are deleted with the next launch or the runner: {error}")

    def hand_over(self) -> None:
        self._watch.remove(self._names)
        self._api.hand_over()

    def _is_of_successor(self, labels: Mapping[str, str]) -> bool:
        """Return whether a pod of the trial, by its labels, belongs to a runner that has replaced this one."""
        run = int(labels.get(RUN, 0))
        is_foreign = labels[RUNNER] != self._api.runner and not self._adopted_as
        return run > self._run or (run == self._run and is_foreign)

    def _connect(self, request: LaunchRequest, pods: Sequence[Manifest]) -> AgentGroup:
        """Connect with the agents in the pods, which run."""
        self._is_placed = True
        return AgentGroup(
            request,
            [self._agent_command(node, pod) for node, pod in enumerate(pods)],
            reconnect_seconds=self._reconnect_seconds,
            launch=pods[0]["metadata"]["labels"][LAUNCH],
            adopted_as=self._adopted_as,
        )

    def _adopt(self, request: LaunchRequest) -> AgentGroup | None:
        """Make the pods of another runner those of this one. As long as there is no answer, it is tried again."""
        self._message = "looking for its pods"
        try:
            found = self._api.find_pods(self._selector)
            pods = sorted(found, key=lambda pod: int(pod["metadata"]["labels"][NODE]))
            self._require_whole_launch(pods)
            self._names = [pod["metadata"]["name"] for pod in pods]
            self._watch.add(self._names)
            self._require_lease()
            for pod in pods:
                self._watch.note(self._api.adopt_pod(pod))
        except ApiError as error:
            if error.is_final or time.monotonic() > self._adopt_until:
                raise
            self._message = str(error)
            return None
        return self._connect(request, pods)

    def _require_whole_launch(self, pods: Sequence[Manifest]) -> None:
        """Raise an error unless all pods of a launch run. Deleted ones still do if their workers save a checkpoint."""
        launches = {pod["metadata"]["labels"][LAUNCH] for pod in pods}
        running = [pod for pod in pods if causes.is_running(pod)]
        if len(launches) != 1 or len(running) != len(self._build("")):
            raise LaunchDelayed(f"{len(running)} of its {len(self._build(''))} pods are running")

    def _create(self) -> bool:
        """Create the pods once those of earlier launches are gone, and return whether it was done."""
        if time.monotonic() < self._create_at:
            return False
        if left := self._removal.advance():
            self._message = f"processes of its earlier run are still alive, in {left}"
            return False
        pods = self._build(uuid.uuid4().hex[:6])
        self._names = [pod["metadata"]["name"] for pod in pods]
        self._watch.add(self._names)
        try:
            for pod in pods:
                self._watch.note(self._api.create_pod(pod))
        except ApiError as error:
            self._delete()
            if _QUOTA in str(error):
                self._message = str(error)
                self._create_at = time.monotonic() + _QUOTA_SECONDS
                return False
            if error.is_final:
                raise LaunchError(f"Kubernetes refuses the pod: {error}") from error
            raise
        return True

    def _require_hope(self, pod: Manifest) -> None:
        """Raise an error about a pod that will not run."""
        name = pod["metadata"]["name"]
        if self._watch.is_gone(name) or "deletionTimestamp" in pod["metadata"]:
            raise LaunchDelayed(f"{name} was deleted before its processes were started")
        if causes.has_ended(pod):
            raise LaunchDelayed(f"a pod ended before its processes were started: {causes.explain_end(pod)}")
        reason, message = causes.waiting_reason(pod)
        if reason in causes.REFUSED:
            raise LaunchError(f"the container of the pod cannot be started: {reason}: {message}")

    def _explain_wait(self, pod: Manifest) -> None:
        """Note why a pod waits. Events say more about those that have a node."""
        if not causes.is_placed(pod):
            self._message = causes.explain_wait(pod)
        elif time.monotonic() > self._look_at:
            self._look_at = time.monotonic() + _EVENT_SECONDS
            self._message = causes.explain_wait(pod, self._find_events(pod["metadata"]["name"]))

    def _require_image(self, waiting: Sequence[Manifest]) -> None:
        """Raise an error if an image could not be pulled for too long."""
        problems = [": ".join(one) for one in map(causes.waiting_reason, waiting) if one[0] in causes.IMAGE_PROBLEMS]
        if not problems:
            self._image_since = time.monotonic()
        elif time.monotonic() > self._image_since + _IMAGE_SECONDS:
            raise LaunchError(f"the image cannot be pulled: {problems[0]}")

    def _makes_way(self, pods: Sequence[Manifest]) -> bool:
        """Return whether an older launch, too, has nodes for some of its pods only. Each would wait for the other."""
        now = time.monotonic()
        if not _is_partial(pods):
            self._partial_since = now
        if now < self._partial_since + _PARTIAL_SECONDS:
            return False
        self._partial_since = now
        launches: dict[str, list[Manifest]] = {}
        for pod in self._api.find_pods(LAUNCH):
            launches.setdefault(pod["metadata"]["labels"][LAUNCH], []).append(pod)
        return any(_is_partial(others) and _age(others) < _age(pods) for others in launches.values())

    def _agent_command(self, node: int, pod: Manifest) -> Sequence[str]:
        agent = [*AGENT_COMMAND, f"--node={node}", f"--name={pod['spec']['nodeName']}", f"--cpus={self._cpus}"]
        if len(self._names) > 1:
            agent.append(f"--host={pod['status']['podIP']}")
        return self._api.exec_command(pod["metadata"]["name"], CONTAINER, agent)

    def _find_cause(self, name: str) -> tuple[Cause, str] | None:
        if not (pod := self._watch.find(name)):
            return None
        return causes.find_cause(pod, self._find_events(name), is_gone=self._watch.is_gone(name))

    def _find_events(self, name: str) -> Sequence[Manifest]:
        with suppress(LaunchError):  # they only explain
            return self._api.find_events(name)
        return ()

    def _delete(self) -> None:
        """Delete the pods, and forget them."""
        names, self._names = self._names, ()
        self._watch.remove(names)
        for name in names:
            self._api.delete_own_pod(name, GRACE_SECONDS)


def _is_partial(pods: Sequence[Manifest]) -> bool:
    """Return whether some pods have a node, and others do not find any."""
    return any(map(causes.is_placed, pods)) and any(map(causes.is_unplaced, pods))


def _age(pods: Sequence[Manifest]) -> tuple[str, str]:
    """Return a value that is smaller for older launches."""
    return min((pod["metadata"]["creationTimestamp"], pod["metadata"]["uid"]) for pod in pods)
