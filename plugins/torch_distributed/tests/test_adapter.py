"""DistributedDataParallel passes the suite that every adapter has to pass."""

from __future__ import annotations

from det_torch.testing import AdapterCompliance


class TestReplicas(AdapterCompliance):
    backend = "torch_distributed"
