"""Rounds of the campaign. In a round, a search is disturbed by faults and resumed until it is completed."""

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

from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore

from ..postgresql import PostgreSQL
from ..runner.conftest import start_runner

LIMIT = 200.0
"""Time limit of a round in seconds."""


@dataclass(frozen=True)
class Round:
    """Running search, and everything that faults can affect."""

    store: TrackingStore
    experiment_id: int
    home: Path
    disk: Path
    """Mount point of the disk for checkpoints."""
    temporary: Path
    """``TMPDIR`` of all processes."""
    server: PostgreSQL | None
    """Server of the database, or None for SQLite."""
    chance: random.Random
    damaged: set[str] = field(default_factory=set)
    """UUIDs of the checkpoints that faults damaged."""
    story: list[str] = field(default_factory=list)
    """Descriptions of what happened, to be printed."""

    @property
    def checkpoints(self) -> Path:
        return self.disk / "checkpoints"

    def processes(self) -> list[psutil.Process]:
        """Return all living processes of the round, which are runner, guards, workers and their children."""
        return list(_with_home(str(self.home)))

    def batches(self) -> int:
        """Return the number of reported batches of all trials."""
        return sum(trial.steps_completed for trial in self.store.trials(self.experiment_id))

    def completed(self) -> bool:
        """Return whether the search is completed."""
        return self.store.experiment(self.experiment_id).state is State.COMPLETED


@dataclass(frozen=True)
class Fault:
    """Kind of fault."""

    inject: Callable[[Round], str | None]
    """Function that does the damage and returns a description of it, or None if there is nothing to damage yet."""
    may_end_runner: bool = False
    """Whether the runner may end because of this fault."""


def run(attacked: Round, planned: Sequence[tuple[int, Fault]]) -> None:
    """Run the search to its end, inject faults, and resume the search if the runner ends.

    Args:
        attacked: the search.
        planned: faults with the numbers of reported batches at which they are injected, in order.

    Raises:
        AssertionError: the search was not completed within the limit, or the runner ended for another reason than a
            fault.
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
