"""Fixtures that start a stand-in for a cluster, or use a real one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

sys.path.insert(0, str(Path(__file__).parent))

from fake_cluster import FakeCluster, fake_cluster


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeCluster]:
    """Run a stand-in for a cluster of two nodes with a core each, which ``kubectl`` reaches."""
    with fake_cluster(tmp_path_factory.mktemp("bin"), {"node-a": 1, "node-b": 1}) as running:
        yield running


@pytest.fixture
def cluster(shared_cluster: FakeCluster) -> Iterator[FakeCluster]:
    """Return the cluster, and require after the test that nothing is left in it."""
    yield shared_cluster
    shared_cluster.reset()


@pytest.fixture(autouse=True)
def det_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set DET_HOME to a new path, and return it."""
    home = tmp_path / "det-home"
    monkeypatch.setenv("DET_HOME", str(home))
    return home


@pytest.fixture
def store(det_home: Path) -> Iterator[TrackingStore]:
    """Return a new tracking store."""
    with open_store() as store:
        yield store
