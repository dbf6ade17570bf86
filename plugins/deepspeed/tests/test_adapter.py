"""Compliance suite for adapters to `PyTorchTrial`, at stage 3, which shards everything."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from det_torch.testing import AdapterCompliance

pytestmark = pytest.mark.usefixtures("deepspeed")


class TestStage3(AdapterCompliance):
    backend = "deepspeed"
    options: ClassVar[dict[str, Any]] = {"ds_config": {"zero_optimization": {"stage": 3}}}
    imports = ("deepspeed",)
    clips = False  # only DeepSpeed itself can clip
