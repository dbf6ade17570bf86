"""Fixture for tests that need DeepSpeed."""

from __future__ import annotations

import pytest
from det_testing.requirements import require_module


@pytest.fixture(scope="session")
def deepspeed() -> None:
    """Skip the test, or fail it where everything must be installed, if DeepSpeed is not installed."""
    require_module("deepspeed", "pip install deepspeed")
