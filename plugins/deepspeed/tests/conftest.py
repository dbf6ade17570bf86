"""Fixture for tests that need DeepSpeed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from det_core.testing.requirements import skip_or_fail_in_ci


@pytest.fixture(scope="session")
def deepspeed() -> None:
    """Skip the test, or fail it where everything must be installed, if DeepSpeed is not installed."""
    if find_spec("deepspeed") is None:
        skip_or_fail_in_ci("DeepSpeed is not installed; install it: pip install deepspeed")
