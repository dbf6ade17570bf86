"""Free resources of the cluster, on which elastic trials grow."""

from __future__ import annotations

from typing import Any

import pytest
from det_ray._config import RayConfig
from det_ray._launcher import RayLauncher

from det_core.interfaces.launcher import LaunchRequest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.usefixtures("cluster")]


@pytest.mark.parametrize(
    ("options", "slots"), [({}, 2), ({"resources": {"CPU": 0.5}}, 4), ({"resources": {"GPU": 1}}, 0)]
)
def test_free_resources_are_available(options: dict[str, Any], slots: int) -> None:
    request = LaunchRequest(key="a", argv=[], code=b"", info={}, slots=1, log=print, call=lambda *_: b"")
    assert RayLauncher(RayConfig(**options)).available_slots(request) == slots
