"""Three runners share two slots while random processes are killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from det_testing import campaign_seeds

from det_core.launch.machine_slots import list_slots

from ..waiting import wait_for
from .slot_runner import Job, reserve

pytestmark = [pytest.mark.integration, pytest.mark.campaign]

PROGRAM = Path(__file__).parent / "slot_runner.py"
RUNNERS, TRIALS, KILLS = 3, 5, 6
LIMIT = 60.0
"""Time limit of a round in seconds."""


class Round:
    """Runners with their trials, of which each needs one or two slots."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.directory = directory
        self.chance = chance
        self.sizes = [2, 2, chance.choice([1, 2])]
        self.jobs: list[list[Job]] = [
            [
                (10 * trial + runner, chance.randint(1, self.sizes[runner]), chance.choice([1, 42, 42]))
                for trial in range(TRIALS)
            ]
            for runner in range(RUNNERS)
        ]
        self.runners = [self.start(runner) for runner in range(RUNNERS)]

    def start(self, runner: int) -> subprocess.Popen[bytes]:
        left = json.dumps([job for job in self.jobs[runner] if not self.is_done(job)])
        return subprocess.Popen([sys.executable, PROGRAM, self.directory, str(self.sizes[runner]), left])

    def is_done(self, job: Job) -> bool:
        return (self.directory / f"done-{job[0]}").exists()

    def kill_one(self) -> None:
        """Kill a runner or a worker, once a slot is in use."""
        wait_for(lambda: self.is_over() or any(state.in_use for state in list_slots([])[0]), LIMIT)
        time.sleep(self.chance.uniform(0, 0.1))
        with suppress(psutil.NoSuchProcess):  # ended meanwhile
            living = [psutil.Process(one.pid) for one in self.runners if one.poll() is None]
            workers = [worker for one in living for worker in one.children()]
            if victims := self.chance.choice([living, workers or living]):
                self.chance.choice(victims).kill()

    def is_over(self) -> bool:
        """Restart killed runners, and return whether all trials are done."""
        for number, runner in enumerate(self.runners):
            if runner.poll() is not None:
                assert runner.returncode <= 0, "a runner has failed"
                if not all(map(self.is_done, self.jobs[number])):
                    self.runners[number] = self.start(number)
        return all(runner.poll() is not None for runner in self.runners)


@pytest.mark.parametrize("seed", campaign_seeds(few=1, many=200))
def test_killed_runners_share_slots(seed: int, tmp_path: Path, slots_directory: Path) -> None:
    """No slot has two users, every trial is served, and nothing is left."""
    attacked = Round(tmp_path, random.Random(seed))
    try:
        for _ in range(KILLS):
            attacked.kill_one()
        wait_for(attacked.is_over, LIMIT)
    finally:
        for runner in attacked.runners:
            runner.kill()
            runner.wait()
    done = {int(path.name.removeprefix("done-")) for path in tmp_path.glob("done-*")}
    assert done == {job[0] for jobs in attacked.jobs for job in jobs}
    assert list(tmp_path.glob("twice-*")) == []
    wait_for(lambda: not any(state.in_use for state in list_slots([])[0]), LIMIT)
    with closing(reserve((1, 2, 1), 2)) as reservation:  # removes the tickets of killed runners
        wait_for(lambda: reservation.poll() is not None, LIMIT)
    assert sorted(path.name for path in slots_directory.iterdir()) == ["slot-cpu-0", "slot-cpu-1"]
