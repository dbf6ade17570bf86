"""Fixture for tests that need Horovod, which is built for ``make test-more`` only."""

from __future__ import annotations

from pathlib import Path

import pytest
from det_testing.requirements import require_module

HERE = Path(__file__).parent
NEED_TENSORFLOW = ("test_estimator_names.py", "test_tensorflow.py")
"""Modules that import TensorFlow. All of their tests need Horovod."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not start TensorFlow where all tests that need it are deselected."""
    is_deselected = "not (slow or campaign)" in config.option.markexpr
    return True if is_deselected and collection_path.name in NEED_TENSORFLOW else None


@pytest.fixture(scope="session")
def horovod() -> None:
    """Skip the test, or fail it where everything must be installed, if Horovod is not installed."""
    require_module("horovod", "make more-horovod")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and "horovod" in item.fixturenames:
            item.add_marker(pytest.mark.slow)
