"""Tests whose means are not here."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def lacking(reason: str) -> NoReturn:
    """Skip the test; in CI, which has everything, fail it."""
    (pytest.fail if "CI" in os.environ else pytest.skip)(reason)
