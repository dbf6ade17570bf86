"""The launcher passes the compliance suite."""

from __future__ import annotations

from typing import ClassVar

import pytest
from det_testing.launcher import LauncherCompliance
from fake_cluster import FakeCluster
from real_cluster import ENVIRONMENT

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.usefixtures("shared_cluster", "cluster")]


class TestKubernetes(LauncherCompliance):
    name = "kubernetes"
    options: ClassVar = {"slots_per_node": 1}
    blocks: ClassVar = {"environment": ENVIRONMENT or FakeCluster.environment}
    has_engine = True
    orders = False  # the scheduler has an order of its own
    numbers_slots = False  # each pod counts its own
