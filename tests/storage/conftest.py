"""Store in a directory, and a small file system that tests can fill."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import det_testing.small_disk
import pytest
from det_testing.requirements import skip_or_fail_in_ci

from det_core.storage.config import DirectoryConfig
from det_core.storage.directory import DirectoryStorage

LARGE = tuple(
    f"tests/storage/test_compliance.py::TestDirectory::test_{name}"
    for name in ("processes_do_not_disturb", "a_large_file", "more_files_than_one_page")
)
"""Tests of the suite for stores that start processes, or that store much."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(LARGE):
            item.add_marker(pytest.mark.integration)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(base: Path) -> DirectoryStorage:
    return DirectoryStorage(DirectoryConfig(container_path=base))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount point of a file system of 2 MiB."""
    if os.getuid() != 0:
        skip_or_fail_in_ci("only root may mount a small disk")
    with det_testing.small_disk.small_disk(tmp_path / "disk", size=2 << 20) as disk:
        yield disk
