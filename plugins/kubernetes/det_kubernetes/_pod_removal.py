"""Removal of the pods of earlier launches."""

from __future__ import annotations

import time
from collections.abc import Callable

from det_kubernetes._api import KubernetesApi

_TICK = 0.5
_GRACE_SECONDS = 10
"""Seconds that workers have to end. Nobody records a checkpoint that they save now."""
_LATE_SECONDS = 90.0
"""Seconds after which pods on a node that does not answer are forgotten. Their agents, which have not heard from a
runner for longer than `det_cluster` allows, have ended the workers by then."""


def remove_pods(
    api: KubernetesApi,
    selector: str,
    *,
    sleep: Callable[[float], None] = time.sleep,
    explain: Callable[[str], None] = lambda pod: None,
) -> None:
    """Delete pods, and wait until they are gone.

    Args:
        api: the API.
        selector: label selector of the pods.
        sleep: function that waits for a number of seconds. It may raise an error to give up.
        explain: function that gets the name of a pod that is still there.
    """
    late_at = time.monotonic() + _LATE_SECONDS
    asked: set[str] = set()
    while found := api.find_pods(selector):
        is_late = time.monotonic() > late_at
        for pod in found:
            name = pod["metadata"]["name"]
            if is_late or name not in asked:
                asked.add(name)
                api.delete_pod(name, 0 if is_late else _GRACE_SECONDS)
        explain(found[0]["metadata"]["name"])
        sleep(_TICK)
