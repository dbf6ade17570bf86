"""Fixtures that start one cluster for all tests of this distribution."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_core.testing.requirements import skip_or_fail_in_ci

sys.path.insert(0, str(Path(__file__).parent))
os.environ["PATH"] = f"{os.environ['PATH']}:/usr/sbin:/sbin"

from cluster import Cluster, missing, slurm_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    if why := missing():
        skip_or_fail_in_ci(why)
    with pytest.MonkeyPatch.context() as patch, slurm_cluster() as running:
        for name in [name for name in os.environ if name.startswith("SLURM")]:
            patch.delenv(name)
        for name, value in running.variables.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture(autouse=True)
def det_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set DET_HOME to a new path, and return it."""
    home = tmp_path / "det-home"
    monkeypatch.setenv("DET_HOME", str(home))
    return home
