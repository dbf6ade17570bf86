"""Fixture for tests that need Horovod."""

from __future__ import annotations

import pytest

from det_core.testing.requirements import require_module


@pytest.fixture(scope="session")
def horovod() -> None:
    """Skip the test, or fail it where everything must be installed, if Horovod is not installed."""
    require_module("horovod", "python -m det_horovod.build")
