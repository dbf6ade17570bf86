"""Removal of the pods of earlier launches."""

from __future__ import annotations

import math
import time
from collections.abc import Collection

from det_kubernetes._api import KubernetesApi
from det_kubernetes._pod_specs import TRIAL
from det_kubernetes.proxy_keeper import GRACE_SECONDS, seconds_until_ended


class PodRemoval:
    """Removal of pods, which takes as long as their processes need.

    Args:
        api: the API.
        selector: label selector of the pods.
        reconnect_seconds: seconds for which workers outlive a lost connection. Pods on a node that does not answer
            are forgotten when their agents must have ended the workers.
        keep: values of the label of trials whose pods stay.
    """

    def __init__(self, api: KubernetesApi, selector: str, reconnect_seconds: float, keep: Collection[str] = ()) -> None:
        self._api, self._selector, self._keep = api, selector, keep
        self._late_seconds = seconds_until_ended(reconnect_seconds)
        self._late_at = math.inf
        self._asked: set[str] = set()

    def advance(self) -> str:
        """Ask for the deletion of all pods, and return the name of one that is left, or "" if none is."""
        pods = [one["metadata"] for one in self._api.find_pods(self._selector)]
        found = [pod["name"] for pod in pods if pod["labels"][TRIAL] not in self._keep]
        if found:
            now = time.monotonic()
            self._late_at = min(self._late_at, now + self._late_seconds)
            is_late = now > self._late_at
            for name in found:
                if is_late or name not in self._asked:
                    self._asked.add(name)
                    self._api.delete_pod(name, 0 if is_late else GRACE_SECONDS)
        return found[0] if found else ""
