"""One round of the campaign: a search that is disturbed by faults and resumed until it is completed."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from det_core.interfaces.tracking import State, TrackingStore

from ..postgresql import PostgreSQL
from ..runner.conftest import start_runner

LIMIT = 200.0
"""Seconds within which a round must be completed."""


@dataclass(frozen=True)
class Round:
    """A running search and all that a fault can reach."""

    store: TrackingStore
    experiment_id: int
    home: Path
    disk: Path
    """Where the checkpoints are."""
    temporary: Path
    """The ``TMPDIR`` of all processes."""
    server: PostgreSQL | None
    """The database's server; None: the database is SQLite."""
    chance: random.Random
    damaged: set[str] = field(default_factory=set)
    """Checkpoints that a fault damaged."""
    story: list[str] = field(default_factory=list)

    @property
    def checkpoints(self) -> Path:
        return self.disk / "checkpoints"

    def processes(self) -> list[psutil.Process]:
        """Return every living process of the round: runner, guards, workers and what they started."""
        return list(_with_home(str(self.home)))

    def batches(self) -> int:
        """Return the number of batches that are reported, over all trials."""
        return sum(trial.steps_completed for trial in self.store.trials(self.experiment_id))

    def completed(self) -> bool:
        """Return whether the search has come to its end."""
        return self.store.experiment(self.experiment_id).state is State.COMPLETED


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    inject: Callable[[Round], str | None]
    """Does the damage and returns what it did; None: there is nothing to damage yet."""
    may_end_runner: bool = False


def run(attacked: Round, planned: Sequence[tuple[int, Fault]]) -> None:
    """Run the search to its end: inject each fault at its number of reported batches, and resume the search if it ends.

    Raises:
        AssertionError: it was not completed within the limit, or the runner ended though no fault may have ended it.
    """
    faults = deque(planned)
    may_end = False
    deadline = time.monotonic() + LIMIT
    runner: subprocess.Popen[bytes] | None = None
    try:
        while True:
            assert time.monotonic() < deadline, f"not completed within {LIMIT:.0f} s"
            if runner is None or runner.poll() is not None:
                if attacked.completed():
                    return
                if runner:
                    attacked.story.append(f"runner ended with {runner.returncode}, resumed")
                    assert may_end, attacked.story[-1]
                runner = start_runner(attacked.store, attacked.experiment_id)
                may_end = False
            if faults and (batches := attacked.batches()) >= faults[0][0]:
                time.sleep(attacked.chance.uniform(0, 0.5))
                fault = faults[0][1]
                if done := fault.inject(attacked):
                    attacked.story.append(f"after {batches} batches: {done}")
                    may_end = may_end or fault.may_end_runner
                    faults.popleft()
            time.sleep(0.05)
    except BaseException:
        for process in attacked.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        raise
    finally:
        if runner:
            runner.wait(LIMIT)


def _with_home(home: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            ours = process.pid != os.getpid() and process.name() != "postgres"
            if ours and process.environ().get("DET_HOME") == home:
                yield process
