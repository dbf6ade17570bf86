"""Launch of a trial in pods."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

from det_cluster.agent_group import AGENT_COMMAND, AgentGroup
from det_cluster.mounted_storage import explain_unmounted_storage, mark_mounted_storage

from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import WITHDRAWN, Allocation, Cause, Exit, LaunchRequest, Phase, Status
from det_kubernetes import _pod_causes as causes
from det_kubernetes._api import ApiError, KubernetesApi
from det_kubernetes._pod_removal import remove_pods
from det_kubernetes._pod_specs import CONTAINER, LAUNCH, TRIAL, Manifest, PodOptions, build_pods, label_value
from det_kubernetes._pod_watch import PodWatch

_MISSING = "det-kubernetes-missing"
"""Line of a pod that does not see the directory of the checkpoints."""
_AGENT = f"""
[ -z "$1" ] || [ -e "$1" ] || {{ echo {_MISSING}; exit 1; }}
shift
exec "$@"
"""
"""Script of each pod. Its arguments are the file that all pods must see, or "", and the command of the agent."""
_TICK = 1.0
_QUOTA = "exceeded quota"
_QUOTA_SECONDS = 10.0
"""Seconds until the next attempt to create pods for which there is no quota."""
_IMAGE_SECONDS = 60.0
"""Seconds for which an image that cannot be pulled is waited for."""
_EVENT_SECONDS = 10.0
"""Seconds between two looks at the events of a pod that does not start."""
_PARTIAL_SECONDS = 30.0
"""Seconds for which a launch keeps the nodes of some of its pods if an older launch waits in the same way."""
_SETTLE_SECONDS = 15.0
"""Seconds within which Kubernetes says why the processes of a pod have ended."""
_SIGNALED = 128
"""Smallest exit code of a command below which a signal ended a process."""


class _Withdrawn(Exception):
    """The launch was withdrawn while it was prepared."""


class _MadeWay(Exception):
    """The launch has given up its nodes for an older one."""


class PodLaunch(Allocation):
    """Launch whose nodes are pods. A thread creates them, and waits until all of them run. Then it is an `AgentGroup`.

    Args:
        request: the launch request.
        nodes: number of nodes.
        options: what the pods have in common.
        cpus: number of cores of a pod, or 0 if its share is unknown.
        experiment: name of the experiment, unique among all tracking stores.
        api: the API.
        watch: states of the pods.

    Raises:
        LaunchError: the directory of the checkpoints cannot be written.
    """

    def __init__(
        self,
        request: LaunchRequest,
        nodes: int,
        options: PodOptions,
        *,
        cpus: int,
        experiment: str,
        api: KubernetesApi,
        watch: PodWatch,
    ) -> None:
        self._request, self._cpus, self._api, self._watch = request, cpus, api, watch
        self._build = partial(build_pods, request.key, nodes, options, runner=api.runner, experiment=experiment)
        self._names: Sequence[str] = ()
        self._message = "creating its pods"
        self._group: _ExecGroup | None = None
        self._end: Exit | None = None
        self._is_stopped = False
        self._canceled = threading.Event()
        with ExitStack() as undo:
            self._seen = undo.enter_context(mark_mounted_storage(request))
            undo.callback(self._clean_up)
            self._undo = undo.pop_all()
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="det-pods")
        self._preparing = self._asking.submit(self._prepare)
        self._inquiry: Future[Exit] | None = None

    def wait(self, timeout: float) -> Exit | None:
        if self._end is None:
            self._end = self._advance(time.monotonic() + timeout)
        return self._end

    def status(self) -> Status:
        names = self._names
        handle = (f"pod {names[0]}" if names else "") + (f" and {len(names) - 1} more" if names[1:] else "")
        if self._group is None:
            return Status(phase=Phase.QUEUED, handle=handle, message=self._watch.problem or self._message)
        return replace(self._group.status(), handle=handle, message=self._watch.problem)

    def preempt(self) -> None:
        self._stop(lambda group: group.preempt())

    def kill(self) -> None:
        self._stop(lambda group: group.kill())

    def close(self) -> None:
        self._canceled.set()
        with self._undo:
            if self._group:
                self._group.close()

    def _stop(self, stop: Callable[[AgentGroup], None]) -> None:
        self._is_stopped = True
        if self._group:
            stop(self._group)
        else:
            self._end = self._end or WITHDRAWN

    def _advance(self, deadline: float) -> Exit | None:
        """Wait until a time for the end, and take the next step if it is its turn."""

        def left() -> float:
            return max(0.0, deadline - time.monotonic())

        try:
            if self._group is None:
                self._group = self._connect(self._preparing.result(left()))
            if self._inquiry is None:
                end = self._group.wait(left())
                if self._group.is_blind:
                    raise LaunchError(explain_unmounted_storage(self._names[0]))
                if end is None or not self._is_unclear(end):
                    return end
                self._inquiry = self._asking.submit(self._explain, end)
            return self._inquiry.result(left())
        except futures.TimeoutError:
            return None

    def _connect(self, pods: Sequence[Manifest]) -> _ExecGroup:
        """Start the agents in the pods, which run."""
        commands = []
        for node, pod in enumerate(pods):
            agent = [*AGENT_COMMAND, f"--node={node}", f"--name={pod['spec']['nodeName']}", f"--cpus={self._cpus}"]
            if len(pods) > 1:
                agent.append(f"--host={pod['status']['podIP']}")
            script = ["sh", "-c", _AGENT, "det", str(self._seen or ""), *agent]
            commands.append(self._api.exec_command(pod["metadata"]["name"], CONTAINER, script))
        return _ExecGroup(self._request, commands)

    def _is_unclear(self, end: Exit) -> bool:
        """Return whether Kubernetes may have caused an end, rather than the workers or the user."""
        return not self._is_stopped and (end.cause is not Cause.WORKERS or not 0 <= end.code < _SIGNALED)

    def _prepare(self) -> Sequence[Manifest]:
        """Create the pods, and return them as soon as all of them run."""
        while True:
            remove_pods(
                self._api,
                f"{TRIAL}={label_value(self._request.key)}",
                sleep=self._sleep,
                explain=lambda pod: self._show(f"processes of its earlier run are still alive, in {pod}"),
            )
            try:
                self._create()
                return self._await_start()
            except _MadeWay:
                self._delete()
                self._message = "another trial that also needs several nodes goes first"
                self._sleep(_PARTIAL_SECONDS)

    def _create(self) -> None:
        """Create all pods, as soon as the quota of the namespace allows it."""
        while True:
            pods = self._build(launch=uuid.uuid4().hex[:6])
            self._names = [pod["metadata"]["name"] for pod in pods]
            self._watch.add(self._names)
            try:
                for pod in pods:
                    self._watch.note(self._api.create_pod(pod))
                return
            except ApiError as error:
                self._delete()
                if _QUOTA in str(error):
                    self._message = str(error)
                elif error.is_final:
                    raise LaunchError(f"Kubernetes refuses the pod: {error}") from error
                else:
                    raise
            self._sleep(_QUOTA_SECONDS)

    def _await_start(self) -> Sequence[Manifest]:
        """Wait until all pods run, and return them."""
        began = time.monotonic()
        look_at = began + _EVENT_SECONDS
        partial_since = image_since = began
        while True:
            pods = [pod for name in self._names if (pod := self._watch.find(name))]
            for pod in pods:
                self._require_hope(pod)
            waiting = [pod for pod in pods if not causes.is_running(pod)]
            if len(pods) == len(self._names) and not waiting:
                return pods
            now = time.monotonic()
            if waiting:
                events: Sequence[Manifest] = ()
                if now > look_at and causes.is_placed(waiting[0]):
                    look_at = now + _EVENT_SECONDS
                    with suppress(LaunchError):
                        events = self._api.find_events(waiting[0]["metadata"]["name"])
                    self._message = causes.explain_wait(waiting[0], events)
                elif now < began + _EVENT_SECONDS or not causes.is_placed(waiting[0]):
                    self._message = causes.explain_wait(waiting[0])
            if not any(causes.waiting_reason(pod)[0] in causes.IMAGE_PROBLEMS for pod in waiting):
                image_since = now
            elif now > image_since + _IMAGE_SECONDS:
                raise LaunchError(f"the image cannot be pulled: {self._message}")
            if not _is_partial(pods):
                partial_since = now
            elif now > partial_since + _PARTIAL_SECONDS and self._is_younger(pods):
                raise _MadeWay
            with self._watch.changed:
                self._watch.changed.wait(_TICK)
            self._sleep(0)

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

    def _is_younger(self, mine: Sequence[Manifest]) -> bool:
        """Return whether another launch, which is older, has some of its nodes, too, and waits for others."""
        launches: dict[str, list[Manifest]] = {}
        for pod in self._api.find_pods(LAUNCH):
            launches.setdefault(pod["metadata"]["labels"].get(LAUNCH, ""), []).append(pod)
        others = [pods for pods in launches.values() if _is_partial(pods)]
        return any(_age(pods) < _age(mine) for pods in others)

    def _explain(self, end: Exit) -> Exit:
        """Return an end with the cause that Kubernetes gives, if it has ended the processes."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            for name in self._names:
                if found := self._find_cause(name):
                    cause, message = found
                    return replace(end, cause=cause, message=message)
            if end.cause is not Cause.NODE_LOST or time.monotonic() > deadline:
                details = "; ".join(filter(None, (end.message, self._watch.problem)))
                return replace(end, message=details)
            with self._watch.changed:
                self._watch.changed.wait(_TICK)

    def _find_cause(self, name: str) -> tuple[Cause, str] | None:
        if not (pod := self._watch.find(name)):
            return None
        events: Sequence[Manifest] = ()
        with suppress(LaunchError):
            events = self._api.find_events(name)
        return causes.find_cause(pod, events, is_gone=self._watch.is_gone(name))

    def _show(self, message: str) -> None:
        self._message = message

    def _sleep(self, seconds: float) -> None:
        if self._canceled.wait(seconds):
            raise _Withdrawn

    def _delete(self) -> None:
        """Delete the pods, and forget them."""
        self._watch.remove(self._names)
        for name in self._names:
            self._api.delete_pod(name)

    def _clean_up(self) -> None:
        self._asking.shutdown()
        self._delete()


class _ExecGroup(AgentGroup):
    """Agents behind ``kubectl exec``."""

    is_blind = False
    """Whether a pod does not see the directory of the checkpoints."""

    def receive_line(self, text: str) -> None:
        if text == _MISSING:
            self.is_blind = True
        else:
            super().receive_line(text)


def _is_partial(pods: Sequence[Manifest]) -> bool:
    """Return whether some pods have a node, and others do not find any."""
    return any(map(causes.is_placed, pods)) and any(map(causes.is_unplaced, pods))


def _age(pods: Sequence[Manifest]) -> tuple[str, str]:
    """Return a value that is smaller for older launches."""
    return min((pod["metadata"]["creationTimestamp"], pod["metadata"]["uid"]) for pod in pods)
