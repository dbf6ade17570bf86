"""The launcher passes the compliance suite."""

from __future__ import annotations

from typing import ClassVar

import pytest

from det_core.testing.launcher import LauncherCompliance

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("cluster")]


class TestJobs(LauncherCompliance):
    name = "slurm"
    options: ClassVar = {"slots_per_node": 2, "partition": "one"}
    orders = False  # Slurm has an order of its own
    numbers_slots = False  # each job counts its own
