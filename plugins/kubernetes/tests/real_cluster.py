"""Real cluster, which ``DET_TEST_KUBECONFIG`` selects.

``DET_TEST_KUBE_ENVIRONMENT`` is a YAML file with the block ``environment`` of experiments: an image with the releases
of this checkout, and a manifest whose pods mount the directory for temporary files of this machine. The program
``DET_TEST_KUBE_PART`` kills and starts parts of the cluster: ``PROGRAM kill kubelet``, ``PROGRAM start apiserver``.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

KUBECONFIG = os.environ.get("DET_TEST_KUBECONFIG")
ENVIRONMENT: dict[str, Any] = (
    yaml.safe_load(Path(os.environ["DET_TEST_KUBE_ENVIRONMENT"]).read_text(encoding="utf-8")) if KUBECONFIG else {}
)
_PART = os.environ.get("DET_TEST_KUBE_PART", "")
_SECONDS = 120.0
_TICK = 0.2


class RealCluster:
    """Cluster that ``kubectl`` reaches."""

    environment = ENVIRONMENT
    missing_image = "localhost:1/missing:1"

    def __init__(self) -> None:
        self._killed: set[str] = set()

    def kubectl(self, *words: str, given: Any = None) -> str:
        """Run ``kubectl``, with an object as its stdin, and return its output."""
        text = None if given is None else json.dumps(given)
        ran = subprocess.run(["kubectl", *words], input=text, capture_output=True, text=True, timeout=_SECONDS)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def find_pods(self) -> list[dict[str, Any]]:
        """Return the pods of all launches."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", "-l", "det/launch", "-o", "json"))["items"]
        return found

    def names(self) -> list[str]:
        """Return the names of the pods of all launches."""
        return [pod["metadata"]["name"] for pod in self.find_pods()]

    def manifests(self) -> str:
        """Return all that the API server knows about the pods."""
        return json.dumps(self.find_pods())

    def delete(self, name: str) -> None:
        """Delete a pod."""
        self.kubectl("delete", "pod", name, "--wait=false", "--ignore-not-found")

    def reset(self) -> None:
        """Start what a test has killed, and wait until no pod is left."""
        for part in list(self._killed):
            self.start(part)
        deadline = time.monotonic() + _SECONDS
        while names := self.names():
            assert time.monotonic() < deadline, f"pods are left: {names}"
            time.sleep(_TICK)

    @contextmanager
    def created(self, manifest: dict[str, Any]) -> Iterator[None]:
        """Create an object for the block."""
        self.kubectl("create", "--filename=-", given=manifest)
        try:
            yield
        finally:
            self.kubectl("delete", "--filename=-", "--ignore-not-found", "--grace-period=1", given=manifest)

    def kill(self, part: str) -> None:
        """Kill a part of the cluster."""
        self._control("kill", part)
        self._killed.add(part)

    def start(self, part: str) -> None:
        """Start a part that was killed."""
        self._killed.discard(part)
        self._control("start", part)

    def _control(self, *words: str) -> None:
        if not _PART:
            pytest.skip("DET_TEST_KUBE_PART is not set")
        subprocess.run([_PART, *words], check=True, timeout=_SECONDS)


def is_running_in_pod(number: int) -> bool:
    """Return whether a pod of this machine has a process of a launch with this id in its own namespace of ids."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
            ids = next(line for line in lines if line.startswith("NSpid:")).split()[1:]
            is_inside = len(ids) > 1 and int(ids[-1]) == number
            if is_inside and "DET_TASK_ID" in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False
