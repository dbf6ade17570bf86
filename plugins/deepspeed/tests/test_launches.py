"""The suite for backends."""

from __future__ import annotations

import pytest

from det_core.testing.backend import BackendCompliance

pytestmark = pytest.mark.integration


class TestDeepSpeed(BackendCompliance):
    plugin = "det_deepspeed.plugin"
    joins = """
import deepspeed
deepspeed.init_distributed("gloo")
deepspeed.comm.barrier()
"""
    limit = 120.0
