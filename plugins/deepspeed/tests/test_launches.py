"""The suite for backends."""

from __future__ import annotations

import pytest

from det_core.testing.backend import BackendCompliance

pytestmark = pytest.mark.integration


class TestLauncher(BackendCompliance):
    plugin = "det_deepspeed.plugin"
