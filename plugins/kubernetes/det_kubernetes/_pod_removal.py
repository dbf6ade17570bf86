"""Removal of the pods of earlier launches."""

from __future__ import annotations

import math
import time

from det_kubernetes._api import KubernetesApi

_GRACE_SECONDS = 8
"""Seconds that workers have to end. Nobody records a checkpoint that they save now."""
_LATE_SECONDS = 90.0
"""Seconds after which pods on a node that does not answer are forgotten. Their agents, which have not heard from a
runner for longer than `det_cluster` allows, have ended the workers by then."""


class PodRemoval:
    """Removal of pods, which takes as long as their processes need.

    Args:
        api: the API.
        selector: label selector of the pods.
    """

    def __init__(self, api: KubernetesApi, selector: str) -> None:
        self._api, self._selector = api, selector
        self._late_at = math.inf
        self._asked: set[str] = set()

    def advance(self) -> str:
        """Ask for the deletion of all pods, and return the name of one that is left, or "" if none is."""
        found = [pod["metadata"]["name"] for pod in self._api.find_pods(self._selector)]
        if found:
            now = time.monotonic()
            self._late_at = min(self._late_at, now + _LATE_SECONDS)
            is_late = now > self._late_at
            for name in found:
                if is_late or name not in self._asked:
                    self._asked.add(name)
                    self._api.delete_pod(name, 0 if is_late else _GRACE_SECONDS)
        return found[0] if found else ""
