"""What a report costs the thread that reports it while observers pass it on, also to a destination that is away.

python benchmarks/observers.py
"""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timezone
from typing import Any

from det_core import events
from det_core.config import parse_config
from det_core.core.event_stream import EventStream

CALLS = 1_000
"""Number of reports in a round, fewer than the queue of an observer holds."""
ROUNDS = 7
LIMIT = 10.0


def measure(observers: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return the microseconds of one report in each round: processor time of the caller's thread, and elapsed time.

    Meanwhile the observers send the reports of earlier rounds. The elapsed time contains waits for their thread to
    release the interpreter lock, and for processors that are busy with something else.
    """
    document = {
        "name": "bench",
        "entrypoint": "model_def:Trial",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": CALLS}},
        "observers": observers,
    }
    stream = EventStream(
        "worker",
        cluster_id="bench",
        experiment_id=1,
        config=parse_config(document).dump(),
        trial={"trial_id": 1, "run_id": 1, "hparams": {"lr": 0.1}},
        fetch_files=lambda *_: None,
    )
    stream.open()
    stream.emit(events.WorkerStarted, steps_completed=0)
    rounds: list[tuple[float, float]] = []
    now = datetime.now(timezone.utc)
    for first in range(0, ROUNDS * CALLS, CALLS):
        time.sleep(1.5)  # the observers' threads wait for more for a second, and then send
        began = time.thread_time(), time.perf_counter()
        for step in range(first, first + CALLS):
            stream.emit(events.MetricsReported, group="training", steps_completed=step, metrics={"loss": 0.5}, time=now)
        ended = time.thread_time(), time.perf_counter()
        busy, elapsed = (1e6 * (end - begin) / CALLS for begin, end in zip(began, ended, strict=True))
        rounds.append((busy, elapsed))
    stream.close()
    return rounds


def main() -> None:
    logging.getLogger("det").setLevel(logging.CRITICAL)  # the destinations are away on purpose
    with tempfile.TemporaryDirectory() as directory, socket.create_server(("127.0.0.1", 0)) as silent:
        os.environ |= {"DET_HOME": directory, "TRACKIO_DIR": directory}
        from trackio.sqlite_storage import SQLiteStorage

        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with closing(sqlite3.connect(SQLiteStorage.init_db("held"))) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            for label, observers in (
                ("no observer", {}),
                ("mlflow, away", {"mlflow": {"tracking_uri": address, "timeout": 1}}),
                ("trackio", {"trackio": {}}),
                ("trackio, away", {"trackio": {"project": "held"}}),
                ("wandb, offline", {"wandb": {"mode": "offline", "dir": directory}}),
                ("wandb, away", {"wandb": {"mode": "online", "base_url": address, "dir": directory}}),
            ):
                busy, elapsed = zip(*measure(observers), strict=True)
                print(
                    f"{label:<15} {statistics.median(busy):5.2f} us per report in the caller, at most {max(busy):.2f} "
                    f"(goal {LIMIT:g}); elapsed {statistics.median(elapsed):.2f}"
                )


if __name__ == "__main__":
    main()
