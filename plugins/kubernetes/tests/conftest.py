"""Fixtures that start a stand-in for a cluster, or use a real one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core_fixtures import det_home  # noqa: F401
from tests.engine_fixtures import store  # noqa: F401

sys.path.insert(0, str(Path(__file__).parent))

from fake_cluster import FakeCluster, fake_cluster
from real_cluster import KUBECONFIG, RealCluster

Cluster = FakeCluster | RealCluster


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return the cluster that ``kubectl`` reaches: a real one, or a stand-in with two nodes that have a core each."""
    with pytest.MonkeyPatch.context() as patch:
        if KUBECONFIG:
            patch.setenv("KUBECONFIG", KUBECONFIG)
            yield RealCluster()
            return
        with fake_cluster(tmp_path_factory.mktemp("bin"), {"node-a": 1, "node-b": 1}) as running:
            yield running


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """Return the cluster, and require after the test that nothing is left in it."""
    yield shared_cluster
    shared_cluster.reset()


@pytest.fixture
def fake(cluster: Cluster) -> FakeCluster:
    """Return the stand-in, whose pods do what a test wants."""
    if not isinstance(cluster, FakeCluster):
        pytest.skip("a real cluster does not do what a test wants")
    return cluster


@pytest.fixture
def real(cluster: Cluster) -> RealCluster:
    """Return the real cluster."""
    if not isinstance(cluster, RealCluster):
        pytest.skip("DET_TEST_KUBECONFIG is not set")
    return cluster
