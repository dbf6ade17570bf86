"""Small stand-in for a cluster: an API server with a scheduler and a kubelet in this process, and a ``kubectl`` for it.

Its pods are processes of this machine. It knows the calls that det-kubernetes makes, and how Kubernetes answers them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

Manifest = dict[str, Any]
PORT, POD = "DET_FAKE_KUBERNETES", "DET_FAKE_POD"
"""Environment variables with the port of the API server, and of the processes of a pod with its name."""
_TICK = 0.05
_END_SECONDS = 30.0
_KUBECTL = f"""#!{sys.executable} -IS
import http.client, json, os, socket, sys, threading

words = [word for word in sys.argv[1:] if not word.startswith(("--context", "--namespace"))]
port = int(os.environ["{PORT}"])

def copy(source, target):
    while content := source.recv(1 << 16):
        target.sendall(content)
    target.shutdown(socket.SHUT_WR)

if words[0] == "proxy":
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(words[1].partition("=")[2])
    listener.listen()
    while True:
        near = listener.accept()[0]
        far = socket.create_connection(("127.0.0.1", port))
        for pair in ((near, far), (far, near)):
            threading.Thread(target=copy, args=pair, daemon=True).start()
if words[0] == "exec":
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", f"/exec/{{words[2]}}")
    answer = connection.getresponse()
    if answer.status != 200:
        sys.exit(f"error: {{answer.read().decode()}}")
    connection.close()
    command = words[words.index("--") + 1:]
    os.execvpe(command[0], command, {{**os.environ, "{POD}": words[2]}})
"""


class FakeCluster:
    """State of the cluster, and what its pods do.

    Args:
        nodes: number of cores of each node, by name.
    """

    environment: Mapping[str, Any] = {"image": "registry.invalid/det:1"}
    missing_image = "registry.invalid/missing:1"

    def __init__(self, nodes: Mapping[str, float]) -> None:
        self.nodes, self._first_nodes = dict(nodes), nodes
        self.pods: dict[str, Manifest] = {}
        self.created: list[Manifest] = []
        """All manifests that were posted."""
        self.events: list[Manifest] = []
        self.refusal: tuple[int, str] | None = None
        """Status and message of answers to the creation of a pod."""
        self.rights: set[tuple[str, str, str]] | None = None
        """Verb, resource and subresource of what the user may do, or None for all."""
        self.is_down = False
        self._changes: list[tuple[int, str, Manifest]] = []
        self._changed = threading.Condition(threading.RLock())

    def names(self) -> list[str]:
        """Return the names of the pods."""
        return list(self.pods)

    def manifests(self) -> str:
        """Return all manifests that were posted."""
        return json.dumps(self.created)

    def reset(self) -> None:
        """Wait until no pod is left, and forget what a test has wanted."""
        self.refusal, self.rights, self.is_down = None, None, False
        self.nodes = dict(self._first_nodes)
        deadline = time.monotonic() + _END_SECONDS
        while self.pods:
            assert time.monotonic() < deadline, f"pods are left: {list(self.pods)}"
            time.sleep(_TICK)
        self.created.clear()
        self.events.clear()

    def create(self, pod: Manifest) -> Manifest:
        """Take a pod, and give it a node if one has room."""
        with self._changed:
            self.created.append(json.loads(json.dumps(pod)))
            created = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            pod["metadata"].update(uid=str(uuid.uuid4()), creationTimestamp=created)
            pod["status"] = {"phase": "Pending"}
            self.pods[pod["metadata"]["name"]] = pod
            self._change("ADDED", pod)
            self._schedule()
            return pod

    def delete(self, name: str, *, grace: float | None = None) -> None:
        """Send SIGTERM to the processes of a pod, and SIGKILL after its grace time, and then remove it."""
        with self._changed:
            pod = self.pods[name]
            if grace == 0:
                self._remove(pod)
            elif "deletionTimestamp" not in pod["metadata"]:
                pod["metadata"]["deletionTimestamp"] = "now"
                self._change("MODIFIED", pod)
                seconds = pod["spec"]["terminationGracePeriodSeconds"] if grace is None else grace
                threading.Thread(target=self._end, args=(pod, seconds), daemon=True).start()

    def label(self, name: str, labels: Mapping[str, str]) -> Manifest:
        """Change labels of a pod. Watches of the labels that it had see it deleted."""
        with self._changed:
            pod = self.pods[name]
            self._change("DELETED", pod)
            pod["metadata"]["labels"].update(labels)
            self._change("ADDED", pod)
            return pod

    def set_status(self, name: str, *, kill: bool = False, **status: Any) -> None:
        """Change the status of a pod, and kill its processes first if that is wanted."""
        with self._changed:
            if kill:
                _signal(_find_processes(name), signal.SIGKILL)
            self.pods[name]["status"].update(status)
            self._change("MODIFIED", self.pods[name])

    def set_node(self, name: str, cores: float) -> None:
        """Change the number of cores of a node, or add it."""
        with self._changed:
            self.nodes[name] = cores
            self._schedule()

    def record_event(self, name: str, reason: str, message: str) -> None:
        """Record an event of a pod."""
        event = {"involvedObject": {"name": name}, "type": "Warning", "reason": reason, "message": message}
        self.events.append({**event, "lastTimestamp": f"{len(self.events):09}"})

    def is_running(self, name: str) -> bool:
        """Return whether processes can be started in a pod."""
        return bool(self.pods.get(name, {}).get("status", {}).get("phase") == "Running")

    def select(self, selector: str) -> tuple[list[Manifest], int]:
        """Return the pods that a label selector selects, and the number of changes so far."""
        with self._changed:
            return [pod for pod in self.pods.values() if _matches(pod, selector)], len(self._changes)

    def changes(self, selector: str, since: int, seconds: float) -> Iterator[Manifest]:
        """Yield the changes of the pods that a label selector selects."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.is_down:
            with self._changed:
                if len(self._changes) == since:
                    self._changed.wait(_TICK)
                new, since = self._changes[since:], len(self._changes)
            for _, kind, pod in new:
                if _matches(pod, selector):
                    yield {"type": kind, "object": pod}

    def may(self, attributes: Mapping[str, str]) -> bool:
        """Return whether the user may do something."""
        asked = (attributes["verb"], attributes["resource"], attributes["subresource"])
        return self.rights is None or asked in self.rights

    def _schedule(self) -> None:
        for pod in self.pods.values():
            if "nodeName" in pod["spec"]:
                continue
            free = [name for name, cores in self.nodes.items() if _cores(pod) <= cores - self._used(name)]
            if not free:
                text = f"0/{len(self.nodes)} nodes are available: {len(self.nodes)} Insufficient cpu."
                unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
                pod["status"]["conditions"] = [unplaced]
                self._change("MODIFIED", pod)
                continue
            pod["spec"]["nodeName"] = free[0]
            (container,) = [one for one in pod["spec"]["containers"] if one["name"] == "determined-container"]
            state: Manifest = {"running": {}}
            if container["image"] == self.missing_image:
                state = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
            pod["status"] = {
                "phase": "Running" if "running" in state else "Pending",
                "podIP": "127.0.0.1",
                "containerStatuses": [{"name": container["name"], "state": state}],
            }
            self._change("MODIFIED", pod)

    def _used(self, node: str) -> float:
        return sum(_cores(pod) for pod in self.pods.values() if pod["spec"].get("nodeName") == node)

    def _end(self, pod: Manifest, grace: float) -> None:
        name = pod["metadata"]["name"]
        _signal(_find_processes(name), signal.SIGTERM)
        deadline = time.monotonic() + grace
        while (left := _find_processes(name)) and time.monotonic() < deadline:
            time.sleep(4 * _TICK)
        _signal(left, signal.SIGKILL)
        with self._changed:
            self._remove(pod)

    def _remove(self, pod: Manifest) -> None:
        if self.pods.pop(pod["metadata"]["name"], None):
            self._change("DELETED", pod)
            self._schedule()

    def _change(self, kind: str, pod: Manifest) -> None:
        pod["metadata"]["resourceVersion"] = str(len(self._changes) + 1)
        self._changes.append((len(self._changes) + 1, kind, json.loads(json.dumps(pod))))
        self._changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: FakeCluster

    def do_GET(self) -> None:
        path, query = self._read()
        if path == "/version":
            self._answer(200, {"major": "1", "minor": "20+", "gitVersion": "v1.20.2"})
        elif path.startswith("/exec/"):
            name = path.rpartition("/")[2]
            self._answer(200 if self.cluster.is_running(name) else 404, {"message": f'pods "{name}" not found'})
        elif path.endswith("/events"):
            name = query["fieldSelector"].partition("=")[2]
            self._answer(200, {"items": [one for one in self.cluster.events if one["involvedObject"]["name"] == name]})
        elif "watch" in query:
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            seconds = float(query["timeoutSeconds"])
            for change in self.cluster.changes(query["labelSelector"], int(query["resourceVersion"]), seconds):
                self.wfile.write(json.dumps(change).encode() + b"\n")
            self.close_connection = True
        else:
            pods, version = self.cluster.select(query["labelSelector"])
            self._answer(200, {"items": pods, "metadata": {"resourceVersion": str(version)}})

    def do_POST(self) -> None:
        path, _ = self._read()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if path.endswith("selfsubjectaccessreviews"):
            self._answer(201, {"status": {"allowed": self.cluster.may(body["spec"]["resourceAttributes"])}})
        elif self.cluster.refusal:
            status, message = self.cluster.refusal
            self._answer(status, {"message": message})
        else:
            self._answer(201, self.cluster.create(body))

    def do_DELETE(self) -> None:
        path, _ = self._read()
        options = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        name = path.rpartition("/")[2]
        wanted = options.get("preconditions", {}).get("resourceVersion")
        if name in self.cluster.pods and self._has_changed(name, wanted):
            self._answer(409, {"message": f'pod "{name}" has another version'})
        elif name in self.cluster.pods:
            self.cluster.delete(name, grace=options.get("gracePeriodSeconds"))
            self._answer(200, {})
        else:
            self._answer(404, {"message": f'pods "{name}" not found'})

    def do_PATCH(self) -> None:
        path, _ = self._read()
        metadata = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["metadata"]
        name = path.rpartition("/")[2]
        if name in self.cluster.pods and self._has_changed(name, metadata.get("resourceVersion")):
            self._answer(409, {"message": f'pod "{name}" has another version'})
        elif name in self.cluster.pods:
            self._answer(200, self.cluster.label(name, metadata["labels"]))
        else:
            self._answer(404, {"message": f'pods "{name}" not found'})

    def _has_changed(self, name: str, version: str | None) -> bool:
        """Return whether a pod has another version than a client expects, unless it expects any."""
        return version not in (None, self.cluster.pods[name]["metadata"]["resourceVersion"])

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _read(self) -> tuple[str, dict[str, str]]:
        url = urlsplit(self.path)
        return url.path, {name: values[0] for name, values in parse_qs(url.query).items()}

    def _answer(self, status: int, content: Any) -> None:
        if self.cluster.is_down:
            status, content = 502, {"message": "dial tcp: connection refused"}
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def fake_cluster(directory: Path, nodes: Mapping[str, float]) -> Iterator[FakeCluster]:
    """Run a cluster that ``kubectl`` on the ``PATH`` reaches.

    Args:
        directory: directory for ``kubectl``.
        nodes: number of cores of each node, by name.
    """
    cluster = FakeCluster(nodes)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"cluster": cluster}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": _TICK})
    thread.start()
    program = directory / "kubectl"
    program.write_text(_KUBECTL, encoding="utf-8")
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
        patch.setenv(PORT, str(server.server_port))
        yield cluster
    cluster.is_down = True
    server.shutdown()
    thread.join()
    server.server_close()


def _matches(pod: Manifest, selector: str) -> bool:
    labels = pod["metadata"]["labels"]
    return all(
        name in labels and (not equals or labels[name] == value)
        for name, equals, value in (part.partition("=") for part in selector.split(","))
    )


def _cores(pod: Manifest) -> float:
    return sum(_parse_cores(str(one["resources"]["requests"].get("cpu", 0))) for one in pod["spec"]["containers"])


def _parse_cores(amount: str) -> float:
    return float(amount[:-1]) / 1000 if amount.endswith("m") else float(amount)


def _find_processes(pod: str) -> list[psutil.Process]:
    """Return the processes of a pod."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(POD) == pod and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _signal(processes: Iterable[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
