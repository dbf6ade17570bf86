"""Runner of an experiment as a job, ``python -m det_slurm._runner_job EXPERIMENT_ID jobs|steps CLUSTER_ID``.

A signal of Slurm pauses the experiment: its trials save checkpoints. Then the job asks to be queued again, and the next
run of it continues. A job that was canceled is not queued again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from det_core.errors import DetError, ExperimentBusy, TrackingError
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner
from det_core.tracking import open_store
from det_slurm._end_causes import is_preempted
from det_slurm._slurm_programs import IN_ALLOCATION, STORE_VARIABLE, read_job, run_program

_BUSY_SECONDS = 90.0
"""Seconds to wait until the lease of a previous run on another host has expired."""
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_OF_JOB = ("SLURM_", "SBATCH_", "SRUN_")
"""Beginnings of the names of variables that describe a job."""
_KEPT = "SLURM_CONF"


def main(experiment_id: int, mode: str, cluster_id: str) -> int:
    """Run the experiment, and return the exit code.

    Args:
        experiment_id: the experiment.
        mode: ``"steps"`` if its trials are steps of this job, ``"jobs"`` if they are jobs of their own.
        cluster_id: id of the tracking store that contains the experiment.
    """
    signaled = threading.Event()
    for number in _SIGNALS:
        signal.signal(number, lambda number, frame: signaled.set())
    job = os.environ[IN_ALLOCATION]
    if mode == "jobs":  # trials are not steps of this job
        for name in [name for name in os.environ if name.startswith(_OF_JOB) and name != _KEPT]:
            del os.environ[name]
    url = os.environ.pop(STORE_VARIABLE, None)  # it may contain a password
    try:
        with open_store(url) as store, ThreadPoolExecutor(1) as thread:  # the main thread handles signals
            if store.cluster_id != cluster_id:
                raise TrackingError(
                    f"experiment {experiment_id} is not in the tracking store of this node; set DET_HOME to "
                    "a directory that the nodes mount, or give a database: det slurm submit --url postgresql://..."
                )
            state = thread.submit(_run, store, experiment_id, signaled).result()
            error = store.experiment(experiment_id).error
        print(f"experiment {experiment_id} is {state.value}{f': {error}' if error else ''}", flush=True)  # noqa: T201
        if state is State.PAUSED and signaled.is_set() and _goes_on(read_job(job)):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # else the requeue would end scontrol, which inherits this
            run_program("scontrol", "requeue", job)
            print(f"job {job} is queued again", flush=True)  # noqa: T201
            return 0
    except DetError as problem:
        print(problem, file=sys.stderr)  # noqa: T201
        return 1
    return 0 if state is State.COMPLETED else 1


def _goes_on(job: Mapping[str, str]) -> bool:
    """Return whether the job was not canceled, but warned of its time limit, or preempted."""
    return job.get("JobState") == "RUNNING" or is_preempted(job)


def _run(store: TrackingStore, experiment_id: int, signaled: threading.Event) -> State:
    def tick() -> None:
        if signaled.is_set():
            store.request_experiment_state(experiment_id, State.PAUSED)

    give_up_at = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            return ExperimentRunner(store, experiment_id).run(tick)
        except ExperimentBusy:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(1.0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
