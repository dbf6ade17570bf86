"""API of the cluster, as the present user of ``kubectl`` reaches it."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

from det_core.errors import LaunchDelayed, LaunchError
from det_core.scratch import scratch_directory
from det_kubernetes import _proxy_calls, proxy_keeper
from det_kubernetes._pod_specs import RUNNER, Manifest
from det_kubernetes.proxy_keeper import seconds_until_deleted

_log = logging.getLogger("det.kubernetes")

_START_SECONDS = 10.0
"""Seconds until ``kubectl proxy`` must listen."""
_CONFIG_SECONDS = 30.0
_ATTEMPTS = 5
"""Number of attempts to delete a pod that changes."""
_TICK = 0.02
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""File with the namespace of the pod of this process, if it runs in one."""
_END_SECONDS = 30.0
"""Seconds until the process beside the runner must have ended, beyond those that it needs for the pods."""
_TEMPORARY = (HTTPStatus.CONFLICT, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
"""Client errors after which another attempt may succeed."""


T = TypeVar("T")


class ApiError(LaunchDelayed):
    """Call that the API server has not carried out.

    Attributes:
        status: HTTP status, or 0 if there was no answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_final(self) -> bool:
        """Whether the same call will be refused again."""
        return (
            HTTPStatus.BAD_REQUEST <= self.status < HTTPStatus.INTERNAL_SERVER_ERROR and self.status not in _TEMPORARY
        )


class KubernetesApi:
    """Access to the pods of a namespace. It may be used from any thread.

    ``kubectl proxy`` holds the credentials, so everything that a kubeconfig may contain works here, and a runner in a
    pod uses its service account. It listens on a socket that only this user can open. The process that keeps it running
    also deletes the pods of this runner when the runner is gone, those that run once no other runner has adopted them.

    Args:
        namespace: namespace of the pods, or None for that of the context.
        context: context of the kubeconfig, or None for the current one.
        reconnect_seconds: seconds for which running pods wait for another runner after the end of this one.
    """

    def __init__(self, namespace: str | None, context: str | None, reconnect_seconds: float = 0.0) -> None:
        self.runner = uuid.uuid4().hex[:12]
        """Id of this runner, which all its pods have as a label."""
        self._kubectl = ["kubectl", *([f"--context={context}"] if context else [])]
        self._namespace = namespace
        self._reconnect_seconds = reconnect_seconds
        self._lock = threading.Lock()
        self._keeper: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None
        self._undo = ExitStack()
        self._is_handed_over = threading.Event()
        weakref.finalize(self, self._undo.close)

    @property
    def namespace(self) -> str:
        """Namespace of the pods."""
        if self._namespace is None:
            self._namespace = self._find_namespace()
        return self._namespace

    def exec_command(self, pod: str, container: str, command: Sequence[str]) -> list[str]:
        """Return the command that runs another one in a pod, connected by stdin and stdout."""
        place = [f"--namespace={self.namespace}", pod, f"--container={container}"]
        return [*self._kubectl, "exec", "--stdin", *place, "--", *command]

    def create_pod(self, manifest: Manifest) -> Manifest:
        """Create a pod, and return what the server has made of it."""
        pod: Manifest = self.call("POST", self._pods, manifest)
        return pod

    def find_pods(self, selector: str) -> list[Manifest]:
        """Return the pods that a label selector selects."""
        return self.list_pods(selector)[0]

    def delete_pod(self, name: str, grace: int, *, version: str = "") -> None:
        """Ask for the deletion of a pod, if it is still there.

        Args:
            name: name of the pod.
            grace: seconds that its processes have to end. With 0, the server forgets it without waiting for its node,
                which may be gone.
            version: version of the pod that is deleted, or "" for any. Another one is a conflict.
        """
        options = {"gracePeriodSeconds": grace, **({"preconditions": {"resourceVersion": version}} if version else {})}
        try:
            self.call("DELETE", f"{self._pods}/{name}", options)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    def delete_own_pod(self, name: str, grace: int) -> None:
        """Ask for the deletion of a pod as `delete_pod`, unless another runner has adopted it.

        Raises:
            ApiError: as `call`, or the pod has changed at the same time.
        """

        def delete() -> None:
            own = {pod["metadata"]["name"]: pod for pod in self.find_pods(f"{RUNNER}={self.runner}")}
            if name in own:
                self.delete_pod(name, grace, version=own[name]["metadata"]["resourceVersion"])

        retry_conflicts(delete)

    def adopt_pod(self, pod: Manifest) -> Manifest:
        """Make a pod one of this runner, and return it. If it has changed since it was read, this is a conflict."""
        name, version = pod["metadata"]["name"], pod["metadata"]["resourceVersion"]
        change = {"metadata": {"resourceVersion": version, "labels": {RUNNER: self.runner}}}
        adopted: Manifest = self.call("PATCH", f"{self._pods}/{name}", change)
        return adopted

    def find_events(self, pod: str) -> list[Manifest]:
        """Return the events of a pod, the oldest first."""
        query = {"fieldSelector": f"involvedObject.name={pod}"}
        found: list[Manifest] = self.call("GET", f"/api/v1/namespaces/{self.namespace}/events", query=query)["items"]
        return sorted(found, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")

    def watch_pods(self, selector: str, version: str, seconds: float) -> Iterator[Mapping[str, Any]]:
        """Yield the changes of the pods that a label selector selects, for a number of seconds.

        Args:
            selector: the selector.
            version: version of the list from which the changes count.
            seconds: time after which the server ends the watch.

        Raises:
            ApiError: the connection was lost, or the server does not know the version any more.
        """
        query = {"labelSelector": selector, "resourceVersion": version}
        try:
            yield from _proxy_calls.watch(self._socket(), self._pods, query, seconds)
        except (OSError, HTTPException, ValueError) as error:
            raise self._unreachable(error) from error

    def list_pods(self, selector: str) -> tuple[list[Manifest], str]:
        """Return the pods that a label selector selects, and the version of the list."""
        found = self.call("GET", self._pods, query={"labelSelector": selector})
        return list(found["items"]), str(found["metadata"]["resourceVersion"])

    def call(self, method: str, resource: str, body: Any = None, query: Mapping[str, str] | None = None) -> Any:
        """Make a call of the API, and return its answer.

        Raises:
            ApiError: it was refused, or there was no answer.
            LaunchError: there is no ``kubectl``, or it cannot be used.
        """
        try:
            status, answer = _proxy_calls.call(self._socket(), method, resource, body, query)
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from error
        if status < HTTPStatus.BAD_REQUEST:
            return answer
        said = answer.get("message", "") if isinstance(answer, dict) else " ".join(str(answer).split())
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise ApiError(status, f"the API server of Kubernetes failed: {said or f'HTTP status {status}'}")
        raise ApiError(status, said or f"the API server of Kubernetes answered with status {status}")

    def hand_over(self) -> None:
        """Leave the running pods to another runner. They are deleted as those of a killed runner."""
        self._is_handed_over.set()

    def close(self) -> None:
        """End ``kubectl proxy``, and delete the pods that are left."""
        with self._lock:
            undo = self._undo.pop_all()
            self._keeper = None
        if self._is_handed_over.is_set():  # the keeper outlives this process
            threading.Thread(target=undo.close, name="det-keeper", daemon=True).start()
        else:
            undo.close()

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def _socket(self) -> str:
        """Return the path of the proxy's socket, after the proxy has started."""
        with self._lock:
            if self._keeper is None or self._keeper.poll() is not None:
                self._undo.close()
                self._keeper = self._start_keeper()
            assert self._directory
            return str(self._directory / "api")

    def _start_keeper(self) -> subprocess.Popen[bytes]:
        if shutil.which(self._kubectl[0]) is None:
            raise LaunchError("kubectl was not found; install it on the machine or in the image of the runner")
        self._directory = self._undo.enter_context(scratch_directory("kubernetes"))
        socket = self._directory / "api"
        command = [*self._kubectl, "proxy", f"--unix-socket={socket}"]
        selector = f"{RUNNER}={self.runner}"
        arguments = [str(socket), self._pods, selector, str(self._reconnect_seconds)]
        with (self._directory / "log").open("wb") as log:
            keeper = subprocess.Popen(
                [sys.executable, "-m", proxy_keeper.__name__, *arguments, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        show_pods = " ".join([*self._kubectl, "get", "pods", f"--namespace={self.namespace}", f"--selector={selector}"])
        self._undo.callback(_end_keeper, keeper, self._is_handed_over, self._reconnect_seconds, show_pods)
        deadline = time.monotonic() + _START_SECONDS
        while not _proxy_calls.listens(str(socket)) and keeper.poll() is None and time.monotonic() < deadline:
            time.sleep(_TICK)
        return keeper

    def _unreachable(self, error: Exception) -> ApiError:
        said = ""
        if self._directory:
            with suppress(OSError):
                said = " ".join((self._directory / "log").read_text(encoding="utf-8", errors="replace").split()[-60:])
        return ApiError(0, f"kubectl does not reach the API server of Kubernetes: {said or error}")

    def _find_namespace(self) -> str:
        command = [*self._kubectl, "config", "view", "--minify", "--output=jsonpath={..namespace}"]
        try:
            ran = subprocess.run(
                command, capture_output=True, encoding="utf-8", timeout=_CONFIG_SECONDS, stdin=subprocess.DEVNULL
            )
        except FileNotFoundError:
            raise LaunchError(
                "kubectl was not found; install it on the machine or in the image of the runner"
            ) from None
        except subprocess.TimeoutExpired:
            raise LaunchDelayed(f"kubectl did not print its configuration within {_CONFIG_SECONDS:.0f} s") from None
        if ran.returncode and _OWN_NAMESPACE.exists():  # without a kubeconfig, in a pod
            return _OWN_NAMESPACE.read_text(encoding="utf-8").strip()
        return ran.stdout.strip() or "default"


def retry_conflicts(action: Callable[[], T]) -> T:
    """Repeat a look at pods with what follows from it, as long as one changes in between."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return action()
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
    return action()


def _end_keeper(
    keeper: subprocess.Popen[bytes], is_handed_over: threading.Event, reconnect_seconds: float, show_pods: str
) -> None:
    """Let the process beside the runner delete the pods, and wait until it has ended.

    Args:
        keeper: the process.
        is_handed_over: whether its pods are left to another runner.
        reconnect_seconds: seconds for which running pods wait for another runner.
        show_pods: command that shows the pods that are left.
    """
    assert keeper.stdin
    seconds = _END_SECONDS + (seconds_until_deleted(reconnect_seconds) if is_handed_over.is_set() else 0.0)
    with suppress(OSError):  # it has ended
        if not is_handed_over.is_set():
            keeper.stdin.write(proxy_keeper.CLOSED)
        keeper.stdin.close()
    try:
        keeper.wait(seconds)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait()
        _log.warning(
            "the process that deletes the pods of this runner has not ended within %.0f s and was killed; "
            "pods that are left: %s",
            seconds,
            show_pods,
        )
