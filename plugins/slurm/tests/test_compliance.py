"""The launcher passes the compliance suite."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import ClassVar

import pytest
from cluster import Cluster
from det_testing import is_soak
from det_testing.launcher import LauncherCompliance

pytestmark = pytest.mark.integration


@pytest.mark.usefixtures("cluster")
class TestJobs(LauncherCompliance):
    name = "slurm"
    has_engine = True
    options: ClassVar = {"slots_per_node": 2, "partition": "one"}
    orders = False  # Slurm has an order of its own
    numbers_slots = False  # each job counts its own
    code_size = (90 if is_soak() else 20) << 20


@pytest.fixture(scope="class")
def allocation(shared_cluster: Cluster) -> Iterator[None]:
    """Run the tests as in a job that has all of a node."""
    job = f"suite-{uuid.uuid4().hex}"
    shared_cluster.run("salloc", "--no-shell", "--partition=one", "--exclusive", f"--job-name={job}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_JOB_ID", shared_cluster.run("squeue", "-h", "-n", job, "-o", "%i").strip())
        yield
    shared_cluster.run("scancel", f"--name={job}")
    shared_cluster.wait_idle()


@pytest.mark.soak
@pytest.mark.usefixtures("allocation")
class TestSteps(LauncherCompliance):
    name = "slurm"
    has_engine = True
    options: ClassVar = {"slots_per_node": 2}
    orders = False
    numbers_slots = False
