"""torchrun passes the suite that every backend has to pass."""

from __future__ import annotations

import pytest
from det_testing.backend import BackendCompliance

pytestmark = pytest.mark.integration


class TestTorchrun(BackendCompliance):
    plugin = "det_torch_distributed.plugin"
    joins = """
import torch.distributed as dist
dist.init_process_group("gloo")
dist.new_group([0, 1])
dist.barrier()
"""
