"""Fixtures that start one cluster for all tests of this distribution."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from det_testing.requirements import skip_or_fail_in_ci

from tests.core_fixtures import det_home  # noqa: F401
from tests.engine_fixtures import store  # noqa: F401

sys.path.insert(0, str(Path(__file__).parent))
os.environ["PATH"] = f"{os.environ['PATH']}:/usr/sbin:/sbin"

from cluster import Cluster, missing, slurm_cluster


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    """Run the cluster of all tests, which the programs of Slurm use."""
    if why := missing():
        skip_or_fail_in_ci(why)
    with pytest.MonkeyPatch.context() as patch, slurm_cluster() as running:
        running.select(patch)
        yield running


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """Return the cluster, and wait after the test until nothing is left in it."""
    yield shared_cluster
    shared_cluster.wait_idle()
