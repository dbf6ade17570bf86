"""Other users cannot read det's data in DET_HOME."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import start_detached

from ..waiting import wait_for


@pytest.fixture
def det_home(det_home: Path) -> Iterator[Path]:
    """A DET_HOME that other users can read."""
    det_home.mkdir()
    det_home.chmod(0o755)
    before = os.umask(0o022)
    yield det_home
    os.umask(before)


@pytest.mark.integration
def test_directories_in_a_home_that_others_read_are_private(
    det_home: Path, store: TrackingStore, new_experiment: Callable[..., ExperimentRecord]
) -> None:
    experiment = new_experiment(data={"password": "hunter2"}, checkpoint_storage=None)
    start_detached(store, experiment.id)
    wait_for(lambda: store.experiment(experiment.id).state is State.COMPLETED)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in det_home.iterdir()}
    assert modes.keys() >= {"det.db", "checkpoints", "runners", "secrets"}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    assert stat.S_IMODE(det_home.stat().st_mode) == 0o755
