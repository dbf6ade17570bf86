"""Speed of `report_training_metrics` with the embedded tracking store, compared with bare sqlite3 for the same rows.

The original needs its master for this. Its figures were measured once, with a master on localhost.

python benchmarks/reports.py
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from tracking import METRICS, bare

from det_core import core

TOTAL = 100_000
"""Number of reports in a round, ten times the capacity of the queue, so that most reports have to wait for room."""
ROUNDS = 3


def enqueue(mode: core.TensorboardMode) -> float:
    """Return the microseconds of one call while there is room in the queue."""
    calls = 2_000
    with core.init(tensorboard_mode=mode) as context:
        report = context.train.report_training_metrics
        best = float("inf")
        for first in range(0, 10 * calls, calls):
            start = time.perf_counter()
            for step in range(first, first + calls):
                report(step, METRICS)
            best = min(best, time.perf_counter() - start)
            context.train.flush()
    return best / calls * 1e6


def sustained(mode: core.TensorboardMode) -> float:
    """Return the number of reports per second, including the time until all of them are committed."""
    context = core.init(tensorboard_mode=mode)
    start = time.perf_counter()
    with context:
        for step in range(TOTAL):
            context.train.report_training_metrics(step, METRICS)
    return TOTAL / (time.perf_counter() - start)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.environ["DET_HOME"] = directory
        print(f"{len(METRICS)} numbers in a report; {TOTAL:,} reports, best of {ROUNDS} rounds")
        for mode in core.TensorboardMode:
            rounds = [
                (enqueue(mode), sustained(mode), bare(Path(directory, "bare.db"), 1000, TOTAL)) for _ in range(ROUNDS)
            ]
            call = min(row[0] for row in rounds)
            rate, limit = max(row[1] for row in rounds), max(row[2] for row in rounds)
            print(
                f"tensorboard {mode.value:<6}  call {call:5.2f} us (goal 5)  sustained {rate:8,.0f}/s (goal 20,000)  "
                f"sqlite3 {limit:8,.0f}/s  ratio {rate / limit:.2f}"
            )
        print("the original with its master on localhost: call 4 us, sustained 1.6 ms each (about 600/s)")


if __name__ == "__main__":
    main()
