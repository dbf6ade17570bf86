"""Tests that cannot run on this machine."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import NoReturn

import pytest


def skip_or_fail_in_ci(reason: str) -> NoReturn:
    """Skip the test because this machine lacks something that it needs. In CI, fail it.

    Args:
        reason: what is missing, for the report.
    """
    (pytest.fail if "CI" in os.environ else pytest.skip)(reason)


def require_module(name: str, install: str) -> None:
    """Skip the test, or fail it in CI, if a module is not installed.

    Args:
        name: name of the module, which is not imported.
        install: command that installs it.
    """
    if find_spec(name) is None:
        skip_or_fail_in_ci(f"{name} is not installed; install it: {install}")
