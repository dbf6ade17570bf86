"""Fixture for tests that need Horovod, which is built for ``make test-more`` only."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_core.testing.requirements import require_module

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def horovod() -> None:
    """Skip the test, or fail it where everything must be installed, if Horovod is not installed."""
    require_module("horovod", "make more-horovod")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and "horovod" in item.fixturenames:
            item.add_marker(pytest.mark.slow)
