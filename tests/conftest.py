"""Every test has a home of its own and the plugins that are really installed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import importlib_metadata
import pytest

from det_core.core._info import get_cluster_info
from det_core.plugins import registry

# Background jobs of shells and of nohup ignore these signals, and their children would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def det_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "det-home"
    monkeypatch.setenv("DET_HOME", str(home))
    for name in ("DET_INFO_DIR", "DET_AGENT_SOCKET", "DET_DISABLE_PLUGINS", "DET_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    for cached in (get_cluster_info, registry):
        cached.cache_clear()
    return home


@pytest.fixture
def only_det_core(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever else is installed."""
    ours = importlib_metadata.distribution("det-core").entry_points.select(group="det")
    monkeypatch.setattr("importlib_metadata.entry_points", lambda group: ours)
    registry.cache_clear()
    yield
    registry.cache_clear()
