"""Workers that report through a server: ``load_reporters.py URL STEPS_PER_SECOND TRIAL...``, until stdin is closed.

Each trial has a thread. At most five times a second, it sends all reports that are due and a log line, as the writer of
a worker does. At the end, the number of reports of each trial is printed as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import datetime, timezone

from det_core.interfaces.records import LogLine, MetricsReport
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

CALLS_PER_SECOND = 5


def main() -> None:
    url, rate, *trials = sys.argv[1:]
    counts: dict[int, int] = {}
    stopped = threading.Event()
    with open_store(url) as store:
        threads = [
            threading.Thread(target=report, args=(store, int(trial), int(rate), counts, stopped)) for trial in trials
        ]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        sys.stdin.read()
        stopped.set()
        for thread in threads:
            thread.join()
    print(json.dumps(counts), flush=True)


def report(store: TrackingStore, trial: int, rate: int, counts: dict[int, int], stopped: threading.Event) -> None:
    begin = due = time.monotonic()
    done = 0
    while not stopped.wait(max(0.0, due - time.monotonic())):
        due = max(due, time.monotonic()) + max(1 / CALLS_PER_SECOND, 1 / rate)
        steps = range(done + 1, int((time.monotonic() - begin) * rate) + 2)
        store.report_metrics([make_report(trial, step) for step in steps])
        done = steps[-1]
        store.add_logs([make_line(trial, f"step {done}")])
        counts[trial] = done


def make_report(trial: int, step: int) -> MetricsReport:
    values = {"loss": 1 / step, "accuracy": 1 - 1 / step, "lr": 0.1}
    return MetricsReport(trial_id=trial, run_id=1, group="training", steps_completed=step, metrics=values)


def make_line(trial: int, text: str) -> LogLine:
    return LogLine(trial_id=trial, run_id=1, rank=0, stdtype="stdout", log=text, time=datetime.now(timezone.utc))


if __name__ == "__main__":
    main()
