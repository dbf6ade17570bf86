"""Pods of one runner, as the API server last reported them."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from det_core.errors import LaunchError
from det_kubernetes._api import KubernetesApi
from det_kubernetes._pod_specs import RUNNER, Manifest

_WATCH_SECONDS = 240.0
"""Seconds after which the server ends a watch. The next one begins with a list of all pods."""
_RETRY_SECONDS = 1.0


class PodWatch:
    """Watch of the pods of one runner, in a thread while it has launches.

    Args:
        api: the API.
    """

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api
        self._selector = f"{RUNNER}={api.runner}"
        self.changed = threading.Condition()
        """Notified after each change."""
        self.problem = ""
        """Why nothing is known about the pods at the moment, or ""."""
        self._names: set[str] = set()
        self._pods: dict[str, Manifest] = {}
        self._gone: set[str] = set()
        self._thread: threading.Thread | None = None

    def add(self, names: Iterable[str]) -> None:
        """Watch pods, from before they are created."""
        with self.changed:
            self._names.update(names)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="det-pods", daemon=True)
                self._thread.start()

    def remove(self, names: Iterable[str]) -> None:
        """Forget pods."""
        with self.changed:
            for name in names:
                self._names.discard(name)
                self._pods.pop(name, None)
                self._gone.discard(name)

    def note(self, pod: Manifest) -> None:
        """Take what the server has answered about a pod, unless more is known."""
        with self.changed:
            self._pods.setdefault(pod["metadata"]["name"], pod)

    def find(self, name: str) -> Manifest | None:
        """Return the last known state of a pod, or None if it has not been seen yet."""
        return self._pods.get(name)

    def is_gone(self, name: str) -> bool:
        """Return whether a pod was there, and is not any more."""
        return name in self._gone

    def _watch(self) -> None:
        while self._goes_on():
            try:
                self._follow()
            except LaunchError as error:
                with self.changed:
                    self.problem = str(error)
                    self.changed.notify_all()
                    self.changed.wait(_RETRY_SECONDS)

    def _goes_on(self) -> bool:
        """Return whether there are pods to watch. Otherwise the thread ends."""
        with self.changed:
            if not self._names:
                self._thread = None
            return bool(self._names)

    def _follow(self) -> None:
        """List the pods, and take their changes until the server ends the watch."""
        seen = set(self._pods)
        listed, version = self._api.list_pods(self._selector)
        found = {pod["metadata"]["name"] for pod in listed}
        self._take(listed, seen - found)
        for event in self._api.watch_pods(self._selector, version, _WATCH_SECONDS):
            if event["type"] == "ERROR" or not self._names:  # the version is too old, or nobody waits
                return
            pod = event["object"]
            self._take([pod], {pod["metadata"]["name"]} if event["type"] == "DELETED" else set())

    def _take(self, pods: Iterable[Manifest], gone: set[str]) -> None:
        with self.changed:
            self.problem = ""
            self._pods.update({name: pod for pod in pods if (name := pod["metadata"]["name"]) in self._names})
            self._gone.update(gone & self._names)
            self.changed.notify_all()
