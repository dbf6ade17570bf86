"""The launcher passes the compliance suite."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import psutil
import pytest
from det_testing.launcher import LauncherCompliance
from det_testing.launcher.launcher_suite import is_running_here
from fake_cluster import FakeCluster
from real_cluster import ENVIRONMENT, KUBECONFIG, is_running_in_pod

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.usefixtures("shared_cluster", "cluster")]


class TestKubernetes(LauncherCompliance):
    name = "kubernetes"
    options: ClassVar = {"slots_per_node": 1, "reconnect_timeout": 20}
    blocks: ClassVar = {"environment": ENVIRONMENT or FakeCluster.environment}
    has_engine = True
    outlives_connection = 20.0
    orders = False  # the scheduler has an order of its own
    numbers_slots = False  # each pod counts its own
    is_local = not KUBECONFIG
    code_size = 20 << 20
    limit = 120.0

    @pytest.fixture
    def is_running(self) -> Callable[[int], bool]:
        """Return a function that returns whether a process is running, by its id in a pod of a real cluster."""
        return is_running_in_pod if KUBECONFIG else is_running_here

    @pytest.fixture
    def lose_connection(self) -> Callable[[], None]:
        """Return a function that kills all ``kubectl exec``, which the stand-in replaces by the agent."""

        def kill() -> None:
            for command in psutil.Process().children():
                if not any("proxy_keeper" in word for word in command.cmdline()):
                    command.kill()

        return kill
