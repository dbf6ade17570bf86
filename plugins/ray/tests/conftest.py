"""Fixtures that start one cluster for all tests of this distribution."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from det_testing.requirements import skip_or_fail_in_ci

from tests.core_fixtures import det_home  # noqa: F401
from tests.engine_fixtures import store  # noqa: F401

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
