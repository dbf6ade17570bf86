"""Program that runs trials on shared slots as a runner does, ``python slot_runner.py DIRECTORY SLOTS JOBS``.

``JOBS`` is a JSON list of trial id, number of slots and priority. Several trials wait at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from det_core.launch.machine_slots import SlotReservation, reserve_slots

WORKER = """
import fcntl, os, sys, time
directory, trial, witness, *slots = sys.argv[1:]
for slot in slots:
    try:
        fcntl.lockf(int(witness), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(slot))
    except OSError:
        open(f"{directory}/twice-{slot}", "w").close()
time.sleep(0.2)
open(f"{directory}/done-{trial}", "w").close()
"""
"""Worker that locks a byte for each of its slots in another way than det does."""

Job = tuple[int, int, int]


def reserve(job: Job, size: int) -> SlotReservation:
    trial, count, priority = job
    return reserve_slots(
        [f"cpu-{index}" for index in range(size)],
        count,
        priority=priority,
        submitted=datetime.fromtimestamp(trial, timezone.utc),
        trial_id=trial,
    )


def main(directory: str, size: int, jobs: list[Job]) -> None:
    # The witness has a lower number than the slots, so an ending worker releases it first.
    witness = os.open(Path(directory, "witness"), os.O_RDWR | os.O_CREAT)
    waiting = {job[0]: reserve(job, size) for job in jobs}
    training: dict[int, tuple[SlotReservation, subprocess.Popen[bytes]]] = {}
    while waiting or training:
        for trial, reservation in list(waiting.items()):
            if (slots := reservation.poll()) is not None:
                command = [sys.executable, "-I", "-S", "-c", WORKER, directory, str(trial), str(witness)]
                descriptors = [witness, *reservation.descriptors]
                process = subprocess.Popen([*command, *map(str, slots)], pass_fds=descriptors)
                training[trial] = waiting.pop(trial), process
        for trial, (reservation, process) in list(training.items()):
            if process.poll() is not None:
                del training[trial]
                reservation.close()
                if process.returncode:
                    waiting[trial] = reserve(next(job for job in jobs if job[0] == trial), size)
        time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
