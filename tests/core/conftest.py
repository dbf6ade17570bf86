"""Fixture that starts the workers of a trial."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from det_core.testing._fork_launcher import run_fork_server

from .workers import MODULES, Workers


@pytest.fixture(scope="session")
def forked() -> Iterator[list[str]]:
    """Return arguments of Python that make its process a fork of one that has imported det_core."""
    with run_fork_server(MODULES) as words:
        yield words


@pytest.fixture
def workers(forked: list[str], tmp_path: Path) -> Workers:
    return Workers(forked, tmp_path)
