"""Tests that cannot run on this machine."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def skip_or_fail_in_ci(reason: str) -> NoReturn:
    """Skip the test because this machine lacks something that it needs. In CI, fail it.

    Args:
        reason: what is missing, for the report.
    """
    (pytest.fail if "CI" in os.environ else pytest.skip)(reason)
