"""The launcher passes the compliance suite on a cluster of two nodes."""

from __future__ import annotations

from typing import ClassVar

import pytest
from det_testing.launcher import LauncherCompliance

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.usefixtures("cluster")]


class TestRay(LauncherCompliance):
    name = "ray"
    options: ClassVar = {"slots_per_node": 1, "resources": {"CPU": 1}}
    orders = False  # Ray has an order of its own
    has_engine = True
    numbers_slots = False  # each launch counts its own
    code_size = 20 << 20
    limit = 120.0
