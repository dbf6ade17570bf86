"""Fixtures that start one cluster for all tests of this distribution."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from det_testing.requirements import skip_or_fail_in_ci

from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

sys.path.insert(0, str(Path(__file__).parent))

from cluster import RunningCluster, loopback_only, missing, ray_cluster


@pytest.fixture(scope="session")
def network() -> Iterator[None]:
    """Leave the network of this machine, where Ray would listen on all addresses."""
    if why := missing():
        skip_or_fail_in_ci(why)
    with loopback_only():
        yield


@pytest.fixture(scope="session")
def cluster(network: None) -> Iterator[RunningCluster]:
    """Run a cluster of two nodes with one CPU each, which ``launcher: {type: ray}`` finds."""
    with pytest.MonkeyPatch.context() as patch, ray_cluster({"CPU": 1}, {"CPU": 1}) as running:
        patch.setenv("RAY_ADDRESS", running.address)
        yield running


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
