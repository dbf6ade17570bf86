"""Fixture for tests that need Horovod."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from det_core.testing.requirements import skip_or_fail_in_ci


@pytest.fixture(scope="session")
def horovod() -> None:
    """Skip the test, or fail it where everything must be installed, if Horovod is not installed."""
    if find_spec("horovod") is None:
        skip_or_fail_in_ci("Horovod is not installed; build it: python -m det_horovod.build")
