"""The adapter passes det-torch's compliance suite.

To run it, type ``pip install 'det-core[testing]' det-torch``, then ``pytest``.
"""

from __future__ import annotations

from typing import ClassVar

from det_torch.testing import AdapterCompliance


class TestRingTorch(AdapterCompliance):
    backend = "ring"
    options: ClassVar = {"grace": 1.0}
    compresses = False
