"""DeepSpeed, where it is installed."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session")
def deepspeed() -> None:
    """For tests whose processes need it."""
    if find_spec("deepspeed") is None:
        (pytest.fail if "CI" in os.environ else pytest.skip)(
            "DeepSpeed is not installed; install it: pip install deepspeed"
        )
