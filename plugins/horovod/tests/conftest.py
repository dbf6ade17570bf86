"""Horovod, where it is built."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from det_core.testing._lacking import lacking


@pytest.fixture(scope="session")
def horovod() -> None:
    """For tests whose processes need it."""
    if find_spec("horovod") is None:
        lacking("Horovod is not installed; build it: python -m det_horovod.build")
