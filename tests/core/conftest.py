"""Fixture that starts the workers of a trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from .workers import Workers


@pytest.fixture
def workers(forked: list[str], tmp_path: Path) -> Workers:
    return Workers(forked, tmp_path)
