"""What the tests of launchers for engines have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from det_testing.disturbed_experiment import PARTS

from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

KILLS_BELOW_THE_AGENT = [
    pytest.param(*PARTS["worker"], 1, id="worker", marks=pytest.mark.soak),
    pytest.param(*PARTS["shell"], 1, id="shell", marks=pytest.mark.soak),
    pytest.param(*PARTS["inner guard"], 1, id="inner guard", marks=pytest.mark.soak),
    pytest.param(*PARTS["outer guard"], 1, id="outer guard", marks=pytest.mark.soak),
]
"""Parts of the command lines of processes above a worker, the number of such processes that are below, and the number
of restarts that the death counts as. Otherwise, it counts as an interruption."""


@pytest.fixture
def store(det_home: Path) -> Iterator[TrackingStore]:
    """Return a new tracking store."""
    with open_store() as store:
        yield store
