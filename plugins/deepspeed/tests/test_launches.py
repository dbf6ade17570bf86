"""Compliance suite for backends, apart from the ends of workers. The launcher is that of det-torch-distributed."""

from __future__ import annotations

import pytest

from det_core.testing.backend._launches import Launches
from det_core.testing.backend._plugin import Plugin

pytestmark = pytest.mark.integration


class TestDeepSpeed(Plugin, Launches):
    plugin = "det_deepspeed.plugin"
    joins = """
import deepspeed
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # otherwise it would be compiled first
deepspeed.init_distributed("gloo")
deepspeed.comm.barrier()
"""
    limit = 120.0
