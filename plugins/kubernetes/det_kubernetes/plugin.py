"""Registration of the launcher ``kubernetes`` with det."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import LauncherSpec


@det_core.hookimpl
def det_launchers() -> Iterator[LauncherSpec]:
    """Yield the specification of the launcher."""
    yield LauncherSpec(
        name="kubernetes",
        target="det_kubernetes._launcher:KubernetesLauncher",
        config_model="det_kubernetes._config:KubernetesConfig",
        claims="det_kubernetes._config:ClaimedKeys",
        install="pip install det-kubernetes",
    )
