"""Removal of the pods of earlier launches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from det_kubernetes._api import KubernetesApi, retry_conflicts
from det_kubernetes._pod_specs import RUNNER
from det_kubernetes.proxy_keeper import GRACE_SECONDS, seconds_until_ended


class PodRemoval:
    """Removal of pods, which takes as long as their processes need.

    Args:
        api: the API.
        selector: label selector of the pods.
        reconnect_seconds: seconds for which workers outlive a lost connection. Pods on a node that does not answer
            are forgotten when their agents must have ended the workers.
        keeps: function that gets the labels of a pod, and returns whether it stays.
    """

    def __init__(
        self,
        api: KubernetesApi,
        selector: str,
        reconnect_seconds: float,
        keeps: Callable[[Any], bool] = lambda _: False,
    ) -> None:
        self._api, self._selector, self._keeps = api, selector, keeps
        self._late_seconds = seconds_until_ended(reconnect_seconds)
        self._late_at = math.inf
        self._asked: set[str] = set()
        self._owners: dict[str, str] = {}
        """Runner of each pod when it was first seen."""

    def advance(self) -> str:
        """Ask for the deletion of all pods that do not stay, and return the name of one that is there, or "".

        A pod that another runner adopts meanwhile stays.

        Raises:
            ApiError: as `KubernetesApi.call`, or a pod changes again and again.
        """
        return retry_conflicts(self._ask)

    def _ask(self) -> str:
        pods = [one["metadata"] for one in self._api.find_pods(self._selector)]
        if not pods:
            return ""
        now = time.monotonic()
        self._late_at = min(self._late_at, now + self._late_seconds)
        is_late = now > self._late_at
        for pod in pods:
            is_adopted = self._owners.setdefault(pod["name"], pod["labels"][RUNNER]) != pod["labels"][RUNNER]
            stays = is_adopted or self._keeps(pod["labels"])
            if not stays and (is_late or pod["name"] not in self._asked):
                self._api.delete_pod(pod["name"], 0 if is_late else GRACE_SECONDS, version=pod["resourceVersion"])
                self._asked.add(pod["name"])
        return str(pods[0]["name"])
