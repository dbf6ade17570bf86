"""Compliance suite for backends, apart from the ends of workers. The launcher is that of det-torch-distributed."""

from __future__ import annotations

import pytest
from det_testing.backend.launch_tests import BackendLaunchTests
from det_testing.backend.registration_tests import BackendRegistrationTests

pytestmark = pytest.mark.integration


class TestDeepSpeed(BackendRegistrationTests, BackendLaunchTests):
    plugin = "det_deepspeed.plugin"
    joins = """
import deepspeed
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # otherwise it would be compiled first
deepspeed.init_distributed("gloo")
deepspeed.comm.barrier()
"""
    limit = 120.0
