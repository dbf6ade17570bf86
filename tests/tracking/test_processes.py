"""Several processes with one tracking store, some of which are killed or forked."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable

import pytest

from det_core.errors import StaleRun
from det_core.interfaces.records import MetricsReport, Run, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

from ..waiting import wait_for

pytestmark = pytest.mark.integration
Python = Callable[..., subprocess.Popen[str]]

WRITE = """
import sys
from det_core.interfaces.records import MetricsReport
from det_core.tracking import open_store

url, trial, reports, batch = sys.argv[1], *map(int, sys.argv[2:])
with open_store(url) as store:
    run = store.start_run(trial, allocation_id="a").run_id
    print("started", flush=True)
    for first in range(0, reports, batch):
        steps = range(first, first + batch)
        store.report_metrics([
            MetricsReport(trial_id=trial, run_id=run, group="training", steps_completed=step, metrics={"x": step})
            for step in steps
        ])
"""


def write(store: TrackingStore, trial_id: int, step: int) -> None:
    report = MetricsReport(trial_id=trial_id, run_id=1, group="training", steps_completed=step, metrics={"x": step})
    store.report_metrics([report])


def steps(store: TrackingStore, trial_id: int) -> list[int]:
    return [row.steps_completed for row in store.metrics(trial_id)]


def test_four_writers_lose_nothing(store: TrackingStore, trial: TrialRecord, python: Python) -> None:
    trials = [store.create_trial(trial.experiment_id, hparams={}, seed=0).id for _ in range(4)]
    writers = [python(WRITE, store.url, number, 400, 20) for number in trials]
    for writer in writers:
        writer.communicate()
    assert [writer.returncode for writer in writers] == [0] * 4
    for number in trials:
        assert steps(store, number) == list(range(400))


def test_a_killed_writer_leaves_whole_batches(store: TrackingStore, trial: TrialRecord, python: Python) -> None:
    for first in (100, 300):
        with python(WRITE, store.url, trial.id, 10_000_000, 50) as writer:
            assert writer.stdout
            assert writer.stdout.readline() == "started\n"
            wait_for(lambda first=first: store.trial(trial.id).steps_completed > first)  # type: ignore[misc]
            writer.kill()
        written = steps(store, trial.id)
        assert written == list(range(len(written)))
        assert len(written) % 50 == 0
        assert written
    if store.url.startswith("sqlite"):
        with sqlite3.connect(store.url.removeprefix("sqlite:///")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()


RACE = """
import sys
from det_core.errors import ExperimentBusy
from det_core.tracking import open_store

print("ready", flush=True)
sys.stdin.read()
with open_store(sys.argv[1]) as store:
"""


def race(others: list[subprocess.Popen[str]]) -> list[str]:
    """Let all processes continue at the same time, and return the output of each."""
    assert {other.stdout.readline() for other in others if other.stdout} == {"ready\n"}
    for other in others:
        assert other.stdin
        other.stdin.close()
    with contextlib.ExitStack() as stack:
        return [stack.enter_context(other).stdout.read() for other in others if other.stdout]


def test_many_processes_open_a_new_store_at_once(url: str, python: Python) -> None:
    code = RACE + "    print(store.create_experiment(config={}, external_id='x').id)"
    assert race([python(code, url) for _ in range(8)]) == ["1\n"] * 8


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # the test is about this
def test_a_forked_child_opens_its_own_connections(store: TrackingStore, run: Run) -> None:
    stop = threading.Event()

    def keep_writing() -> None:
        step = 1_000_000
        while not stop.is_set():
            write(store, run.trial_id, step := step + 1)

    thread = threading.Thread(target=keep_writing)
    thread.start()
    try:
        for step in range(4):
            if (child := os.fork()) == 0:
                status = 1
                try:
                    signal.alarm(60)
                    write(store, run.trial_id, step)
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
            write(store, run.trial_id, 100 + step)
    finally:
        stop.set()
        thread.join()
    found = steps(store, run.trial_id)
    assert found[:8] == [*range(4), *range(100, 104)]
    assert found[8:] == list(range(1_000_001, 1_000_001 + len(found) - 8))


def test_threads_share_a_store(store: TrackingStore, run: Run) -> None:
    threads = [
        threading.Thread(target=lambda first=first: [write(store, run.trial_id, first + i) for i in range(20)])
        for first in (0, 20, 40, 60)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert steps(store, run.trial_id) == list(range(80))


def test_one_of_many_processes_acquires_the_lease(store: TrackingStore, trial: TrialRecord, python: Python) -> None:
    code = (
        RACE
        + """
    try:
        store.acquire_lease(int(sys.argv[2]), sys.argv[3], seconds=60)
        print(sys.argv[3])
    except ExperimentBusy:
        pass
"""
    )
    printed = race([python(code, store.url, trial.experiment_id, name) for name in "abcd"])
    assert "".join(printed).split() == [store.lease_holder(trial.experiment_id)]


def test_a_run_that_another_process_replaced_cannot_write(store: TrackingStore, run: Run, python: Python) -> None:
    with python(WRITE, store.url, run.trial_id, 100, 100) as writer:
        writer.communicate()
    with pytest.raises(StaleRun, match="run 1 of trial 1 may not write: the newest is run 2"):
        write(store, run.trial_id, 1)
    with open_store(store.url) as again:
        assert steps(again, run.trial_id) == list(range(100))
