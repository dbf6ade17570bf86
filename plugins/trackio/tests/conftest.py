"""Fixtures that give the tests a Trackio directory of their own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_core.plugins import plugin_registry


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "det-home"))
    plugin_registry.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def _trackio_directory() -> Iterator[None]:
    """Set Trackio's directory before its import, which reads it."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith("TRACKIO_"):
                patch.delenv(name)
        patch.setenv("TRACKIO_DIR", directory)
        yield
