"""Compliance suite for adapters to `PyTorchTrial`."""

from __future__ import annotations

import pytest
from det_torch.testing import AdapterCompliance

pytestmark = pytest.mark.usefixtures("horovod")


class TestHorovod(AdapterCompliance):
    backend = "horovod"
    tolerance = 1e-6
