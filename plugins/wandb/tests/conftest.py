"""Fixtures that hide the settings of whoever runs the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from det_core.plugins import plugin_registry


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("WANDB_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DET_HOME", str(tmp_path / "det-home"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_DISABLE_GIT", "true")  # its client may leave processes of git to the garbage collector
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    plugin_registry.cache_clear()
