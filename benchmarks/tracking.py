"""Number of reports per second that a tracking store accepts, compared with bare sqlite3 for the same rows.

python benchmarks/tracking.py [URL]
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from det_core.interfaces.records import MetricsReport
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

METRICS = {"loss": 0.123456789, "accuracy": 0.987654321, "lr": 0.001, "batches": 100, "epochs": 0.5}
SIZES = {1: 1_000, 100: 20_000, 1000: 20_000}
"""Number of reports in a batch -> total number of reports."""


def ours(store: TrackingStore, batch: int, total: int) -> float:
    """Return the number of reports per second that the store accepts."""
    experiment = store.create_experiment(config={})
    trial = store.create_trial(experiment.id, hparams={}, seed=0)
    run = store.start_run(trial.id, allocation_id="benchmark")
    start = time.perf_counter()
    for first in range(0, total, batch):
        store.report_metrics([report(trial.id, run.run_id, step) for step in range(first, first + batch)])
    return total / (time.perf_counter() - start)


def report(trial_id: int, run_id: int, step: int) -> MetricsReport:
    return MetricsReport(trial_id=trial_id, run_id=run_id, group="training", steps_completed=step, metrics=METRICS)


def bare(path: Path, batch: int, total: int) -> float:
    """Return the number of rows per second that sqlite3 inserts into the file at ``path``."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; DROP TABLE IF EXISTS metrics")
    connection.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, trial, step, name TEXT, metrics TEXT, time TEXT)")
    connection.execute("CREATE UNIQUE INDEX live ON metrics (trial, step, name)")
    start = time.perf_counter()
    for first in range(0, total, batch):
        rows = [(1, step, "training", json.dumps(METRICS), "2026-01-01") for step in range(first, first + batch)]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO metrics (trial, step, name, metrics, time) VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
    rate = total / (time.perf_counter() - start)
    connection.close()
    return rate


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{directory}/det.db"
        print(f"{'batch':>6} {'det, reports/s':>16} {'sqlite3, rows/s':>16} {'ratio':>6}")
        with open_store(url) as store:
            for batch, total in SIZES.items():
                rounds = [(ours(store, batch, total), bare(Path(directory, "bare.db"), batch, total)) for _ in range(3)]
                rate, limit = (max(rates) for rates in zip(*rounds, strict=True))
                print(f"{batch:>6} {rate:>16,.0f} {limit:>16,.0f} {rate / limit:>6.2f}")


if __name__ == "__main__":
    main()
