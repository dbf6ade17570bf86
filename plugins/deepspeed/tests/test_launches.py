"""Compliance suite for backends."""

from __future__ import annotations

import pytest

from det_core.testing.backend import BackendCompliance

pytestmark = pytest.mark.integration


class TestDeepSpeed(BackendCompliance):
    plugin = "det_deepspeed.plugin"
    joins = """
import deepspeed
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled first
deepspeed.init_distributed("gloo")
deepspeed.comm.barrier()
"""
    limit = 120.0
