"""The plugin passes det's compliance suite.

To run it, type ``pip install 'det-core[testing]'``, then ``pytest test_ring.py``.
"""

from __future__ import annotations

from typing import ClassVar

from det_testing.backend import BackendCompliance


class TestRing(BackendCompliance):
    plugin = "det_ring"
    options: ClassVar = {"grace": 1.0}
