"""Horovod, where it is built."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session")
def horovod() -> None:
    """For tests whose processes need it."""
    if find_spec("horovod") is None:
        (pytest.fail if "CI" in os.environ else pytest.skip)(
            "Horovod is not installed; build it: python -m det_horovod.build"
        )
