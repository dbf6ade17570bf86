"""Fixture for tests that need DeepSpeed, and the marks of tests that run in the soak only."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_core.testing.requirements import require_module

HERE = Path(__file__).parent
REPEATED = (
    "two_hosts",
    "random_kills",
    "failed_and_resumed",
    "a_stuck_slot",
    "four_slots",
    "test_launches.py",
)
"""Parts of the names of tests whose rules others test: those of torch.distributed, and all stages between two slots."""


@pytest.fixture(scope="session")
def deepspeed() -> None:
    """Skip the test, or fail it where everything must be installed, if DeepSpeed is not installed."""
    require_module("deepspeed", "pip install deepspeed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and any(part in item.nodeid for part in REPEATED):
            item.add_marker(pytest.mark.soak)
