"""Cost of the runner with 256 trials at once, and with 10 000 trials in one search.

The runner, the tracking store (SQLite) and the checkpoint storage are real. Launches run on the simulated cluster of
tests/runner/simulated_cluster.py, whose workers report and save through the runner. Its own CPU time is subtracted. The
physical limit is one bare transaction of SQLite for each call of the store, made by the runner or by a worker.

    python benchmarks/scale.py [TRIALS]
"""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil

from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner
from det_core.tracking import open_store
from tests.runner import simulated_cluster
from tests.runner.simulated_search import CountedStore, Peaks, install_cluster, run_search, submit_search

AT_ONCE = 256
IDLE_SECONDS = 10.0
SEARCHER = {"max_concurrent_trials": AT_ONCE}


def measure_bare_transactions(file: Path, count: int) -> tuple[float, float]:
    """Return the CPU time and the time of transactions of one row each."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; CREATE TABLE rows (id INTEGER PRIMARY KEY, value)"
    )
    start, cpu = time.perf_counter(), time.process_time()
    for number in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO rows (value) VALUES (?)", [number])
        connection.execute("COMMIT")
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - start
    connection.close()
    return cpu, seconds


def measure_search(directory: Path, store: TrackingStore, searcher: dict[str, Any]) -> None:
    cluster = {"fault_rate": 0.02, "batch_seconds": 0.05}
    experiment = submit_search(store, directory, {**SEARCHER, **searcher}, cluster)
    counted, peaks, process = CountedStore(store), Peaks(), psutil.Process()
    start, cpu, written = time.perf_counter(), time.process_time(), process.io_counters().write_chars
    run_search(cast("TrackingStore", counted), experiment.id, peaks.measure, limit=3600)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    written = process.io_counters().write_chars - written

    journal = simulated_cluster.journal
    trials, launches = searcher["max_trials"], sum(journal.launches.values())
    calls, of_workers = sum(counted.calls.values()), sum(journal.calls.values())
    cpu -= journal.worker_seconds
    bare_cpu, bare_seconds = measure_bare_transactions(directory / "bare.db", calls)
    memory = [rss - peaks.memory_before for rss in peaks.memory]
    growth = (max(memory) - max(memory[: len(memory) // 5])) / trials
    figures = {
        "CPU": f"{1000 * cpu / launches:.1f} ms per launch, {cpu / bare_cpu:.0f} x bare transactions",
        "time": f"{launches / seconds:.1f} launches per second, {seconds / bare_seconds:.0f} x bare transactions",
        "memory": f"{max(memory) / 2**20:.0f} MiB; {growth / 2**10:.1f} KiB per trial after a fifth of the time",
        "threads": f"{peaks.threads}; {peaks.files - peaks.files_before} more open files",
        "calls": f"{(calls - of_workers) / launches:.1f} per launch by the runner, "
        f"{of_workers / launches:.1f} by workers",
        "bytes": f"{journal.call_bytes / launches / 2**10:.1f} KiB per launch from and to workers, "
        f"{written / launches / 2**10:.0f} KiB written to files",
    }
    print(
        f"{trials} trials of {searcher['name']}, {journal.most_running} at once, {launches} launches, {seconds:.0f} s"
    )
    for name, figure in figures.items():
        print(f"  {name:9}{figure}")


def measure_idle(directory: Path, store: TrackingStore) -> None:
    """Measure the CPU time of the runner while all trials train and report nothing."""
    searcher = {"name": "random", "max_trials": AT_ONCE, **SEARCHER}
    experiment = submit_search(store, directory, searcher, {"batch_seconds": 3600})
    measured: list[float] = []
    begin = float("inf")

    def tick() -> None:
        nonlocal begin
        now = time.monotonic()
        trials = store.trials(experiment.id) if begin == float("inf") else []
        if trials and all(trial.placement.startswith("running") for trial in trials):
            begin = now + 2
        if now > begin and (not measured or (len(measured) == 1 and now > begin + IDLE_SECONDS)):
            measured.append(time.process_time())
            if len(measured) == 2:
                store.request_experiment_state(experiment.id, State.STOPPING_KILLED)

    ExperimentRunner(store, experiment.id).run(tick)
    first, last = measured
    used = (last - first) / IDLE_SECONDS
    print(f"{AT_ONCE} trials that report nothing: {100 * used:.1f} % of a core", end=", ")
    print(f"{used / polling_share():.1f} times {AT_ONCE} threads that wake up 5 times per second\n")


def polling_share() -> float:
    """Return the share of a core that threads need which only wait."""
    ended = threading.Event()
    never = [threading.Event() for _ in range(AT_ONCE)]

    def poll(event: threading.Event) -> None:
        while not ended.is_set():
            event.wait(0.2)

    threads = [threading.Thread(target=poll, args=[event]) for event in never]
    for thread in threads:
        thread.start()
    cpu = time.process_time()
    time.sleep(IDLE_SECONDS)
    share = (time.process_time() - cpu) / IDLE_SECONDS
    ended.set()
    for thread in threads:
        thread.join()
    return share


def run_part(measure: Callable[..., None], *options: Any) -> None:
    """Run a measurement with a new store, in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        os.environ["DET_HOME"] = name
        sys.path.insert(0, name)
        install_cluster(directory)
        with open_store() as store:
            measure(directory, store, *options)


def main(trials: int) -> None:
    print("the CPU time includes the calls that workers make through the runner\n", flush=True)
    for part in (
        (measure_idle,),
        (measure_search, {"name": "random", "max_trials": AT_ONCE}),
        (measure_search, {"name": "async_halving", "num_rungs": 3, "max_trials": trials}),
    ):
        process = multiprocessing.get_context("spawn").Process(target=run_part, args=part)
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"{part[0].__name__} ended with exit code {process.exitcode}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
