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
        require_lease: function that raises an error unless this runner still holds its experiment.
    """

    def __init__(
        self,
        api: KubernetesApi,
        selector: str,
        reconnect_seconds: float,
        keeps: Callable[[Any], bool] = lambda _: False,
        *,
        require_lease: Callable[[], None],
    ) -> None:
        self._api, self._selector, self._keeps, self._require_lease = api, selector, keeps, require_lease
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
            LaunchDelayed: another runner may hold the experiment.
        """
        return retry_conflicts(self._ask)

    def _ask(self) -> str:
        pods = [one["metadata"] for one in self._api.find_pods(self._selector)]
        if not pods:
            return ""
        now = time.monotonic()
        self._late_at = min(self._late_at, now + self._late_seconds)
        is_late = now > self._late_at
        removed = [pod for pod in pods if not self._stays(pod) and (is_late or pod["name"] not in self._asked)]
        if removed:
            self._require_lease()  # so none of them belongs to the next runner, unless it changes
        for pod in removed:
            self._api.delete_pod(pod["name"], 0 if is_late else GRACE_SECONDS, version=pod["resourceVersion"])
            self._asked.add(pod["name"])
        return str(pods[0]["name"])

    def _stays(self, pod: Any) -> bool:
        is_adopted = self._owners.setdefault(pod["name"], pod["labels"][RUNNER]) != pod["labels"][RUNNER]
        return is_adopted or self._keeps(pod["labels"])
