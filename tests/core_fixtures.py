"""Fixtures that give every test its own DET_HOME, and speed up tests without processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import importlib_metadata
import pytest
from det_testing.fork_server import run_fork_server

from det_core.core._cluster_info import get_cluster_info
from det_core.launch._prepared_command import WORKER_MODULES
from det_core.plugins import Registry, _registry, plugin_registry
from det_core.tracking import access_tokens


@pytest.fixture(autouse=True)
def det_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set DET_HOME to a new path, clear det's other environment variables, and return the path."""
    home = tmp_path / "det-home"
    monkeypatch.setenv("DET_HOME", str(home))
    for name in (
        *("DET_INFO_DIR", "DET_AGENT_SOCKET", "DET_DISABLE_PLUGINS", "DET_DEBUG", "DET_RESUME"),
        *("DET_MASTER", "DET_MASTER_ADDR", "DET_TOKEN", "DET_MASTER_CERT_FILE"),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(access_tokens, "_given", {})
    for cached in (get_cluster_info, plugin_registry):
        cached.cache_clear()
    return home


@pytest.fixture(scope="session")
def forked() -> Iterator[list[str]]:
    """Return arguments of Python that make its process a fork of one that has imported det_core."""
    with run_fork_server(WORKER_MODULES) as words:
        yield words


@pytest.fixture(scope="session")
def installed() -> tuple[list[str], importlib_metadata.EntryPoints]:
    """Return ``sys.path`` and the entry points found on it."""
    return list(sys.path), importlib_metadata.entry_points(group="det")


@pytest.fixture(scope="session")
def registry_of_installed(installed: tuple[list[str], importlib_metadata.EntryPoints]) -> Callable[..., Registry]:
    """Return a function like `Registry` that makes one of the installed plugins only once."""
    _, found = installed
    shared = cache(lambda disabled: Registry(found, disabled))

    def make(entry_points: Sequence[importlib_metadata.EntryPoint], disabled: Sequence[str]) -> Registry:
        is_same = [*map(id, entry_points)] == [*map(id, found)]
        return shared(tuple(disabled)) if is_same else Registry(entry_points, disabled)

    return make


@pytest.fixture(autouse=True)
def _quick_scans(
    monkeypatch: pytest.MonkeyPatch,
    installed: tuple[list[str], importlib_metadata.EntryPoints],
    registry_of_installed: Callable[..., Registry],
) -> None:
    """Scan the two hundred installed distributions only once, except for tests that install another."""
    path, found = installed
    scan = importlib_metadata.entry_points
    monkeypatch.setattr(
        importlib_metadata, "entry_points", lambda group: found if sys.path == path else scan(group=group)
    )
    monkeypatch.setattr(_registry, "Registry", registry_of_installed)


@pytest.fixture
def only_det_core(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide all installed plugins except those of det-core."""
    ours = importlib_metadata.distribution("det-core").entry_points.select(group="det")
    monkeypatch.setattr("importlib_metadata.entry_points", lambda group: ours)
    plugin_registry.cache_clear()
    yield
    plugin_registry.cache_clear()
