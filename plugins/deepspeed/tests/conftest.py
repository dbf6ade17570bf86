"""DeepSpeed, where it is installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from det_core.testing._lacking import lacking


@pytest.fixture(scope="session")
def deepspeed() -> None:
    """For tests whose processes need it."""
    if find_spec("deepspeed") is None:
        lacking("DeepSpeed is not installed; install it: pip install deepspeed")
