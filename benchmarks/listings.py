"""What it costs to look at a search of 100 trials with 100,000 rows of metrics each, command by command.

python benchmarks/listings.py [TRIALS [ROWS]]
"""

from __future__ import annotations

import json
import math
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from det_core.interfaces.tracking import State, Trial
from det_core.tracking import open_store

GOAL = 0.2
"""Seconds that a listing may take."""
EVERY = 10
"""Of so many reports one is a validation."""
CHECKPOINTS = 20
"""Of each trial."""
EXPERIMENTS = 1000
"""Others in the same record."""

COMMANDS = {
    "experiment list": True,
    "experiment list --label 7 --limit 20": True,
    "experiment describe 1": True,
    "experiment trials 1 --sort-by best": True,
    "trial list 1 --state COMPLETED --sort-by latest --limit 10": True,
    "trial describe {middle}": True,
    "trial describe {middle} --metrics --group validation --after {almost} --csv": True,
    "checkpoint list 1 --best --limit 100": True,
    "checkpoint list": True,
    "trial describe {middle} --metrics --csv": False,
    "experiment plot 1 -o {home}/curves.png": False,
}
"""Arguments -> whether it is a listing."""

MEASURE = """
import io, json, resource, sys, time
from contextlib import redirect_stdout
from det_core.cli import main
seconds, processor = [], []
for attempt in range(int(sys.argv[1])):
    out, start, used = io.StringIO(), time.perf_counter(), time.process_time()
    with redirect_stdout(out):
        code = main(sys.argv[2:])
    seconds.append(time.perf_counter() - start)
    processor.append(time.process_time() - used)
    assert code == 0, out.getvalue()
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([min(seconds), min(processor), memory, out.getvalue().count("\\n")]))
"""


def fill(trials: int, rows: int) -> None:
    """A record with a finished search, written by hand where `report_metrics` would take an hour."""
    with open_store() as store:
        searcher = {"name": "random", "metric": "validation_loss", "smaller_is_better": True}
        experiment = store.create_experiment(config={"name": "big", "searcher": searcher})
        made = [store.create_trial(experiment.id, hparams={"lr": 0.1**n, "width": n}, seed=n) for n in range(trials)]
        for trial in made:
            store.start_run(trial.id, allocation_id="benchmark")
        _write(made, rows)
        for trial in made:
            for number in range(1, CHECKPOINTS + 1):
                step = rows // (CHECKPOINTS * EVERY) * number * EVERY
                resources = {f"part-{part}": 1000 for part in range(10)}
                uuid = f"{trial.id:08}-{number:04}"
                store.begin_checkpoint(uuid, trial_id=trial.id, run_id=1, storage={"type": "directory"})
                store.complete_checkpoint(uuid, run_id=1, steps_completed=step, resources=resources, metadata={})
            store.set_trial_state(trial.id, State.COMPLETED)
        store.set_experiment_state(experiment.id, State.COMPLETED)
        for number in range(EXPERIMENTS):
            store.create_experiment(config={"name": f"small {number}", "labels": [str(number % 10)]})


def _write(trials: list[Trial], rows: int) -> None:
    """The metrics. Indexes are made afterwards, which takes a third of the time."""
    connection = sqlite3.connect(Path(os.environ["DET_HOME"], "det.db"), isolation_level=None)
    indexes = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'metrics' AND sql IS NOT NULL"
    ).fetchall()
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    for trial in trials:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE trials SET steps_completed = ? WHERE id = ?", (rows, trial.id))
        connection.executemany(
            'INSERT INTO metrics (trial_id, run_id, steps_completed, "group", metrics, time, archived, searcher_metric)'
            " VALUES (?, 1, ?, ?, ?, '2026-01-01 00:00:00.000000', 0, ?)",
            _reports(trial, rows),
        )
        connection.execute("COMMIT")
    for _, statement in indexes:
        connection.execute(statement)
    connection.close()


def _reports(trial: Trial, rows: int) -> Iterator[tuple[int, int, str, str, float | None]]:
    chance = random.Random(trial.seed)
    for step in range(1, rows + 1):
        loss = math.exp(-step / rows * 3) * (1 + trial.seed / 100) + chance.random() / 20
        if step % EVERY:
            yield trial.id, step, "training", f'{{"loss":{loss},"accuracy":{1 - loss}}}', None
        else:
            yield trial.id, step, "validation", f'{{"validation_loss":{loss}}}', loss


def measure(command: list[str], attempts: int) -> tuple[float, float, float, int]:
    """Seconds of the command after its imports, those of the processor alone, MiB at most, lines printed."""
    run = subprocess.run([sys.executable, "-c", MEASURE, str(attempts), *command], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stdout + run.stderr)
    seconds, processor, memory, lines = json.loads(run.stdout.splitlines()[-1])
    return seconds, processor, memory, lines


def main() -> None:
    trials, rows = (int(sys.argv[n]) if len(sys.argv) > n else default for n, default in ((1, 100), (2, 100_000)))
    with tempfile.TemporaryDirectory() as home:
        os.environ["DET_HOME"] = home
        start = time.perf_counter()
        fill(trials, rows)
        size = Path(home, "det.db").stat().st_size
        print(f"{trials} trials with {rows:,} rows each: {size / 1e6:,.0f} MB, {time.perf_counter() - start:.0f} s")
        print(f"{'ms':>8} {'CPU ms':>8} {'MiB':>6} {'lines':>8}  det ...", flush=True)
        for command, listing in COMMANDS.items():
            words = command.format(home=home, middle=-(-trials // 2), almost=rows - 1000).split()
            seconds, processor, memory, lines = measure(words, 5 if listing else 1)
            verdict = "" if not listing or seconds <= GOAL else f"  over the goal of {GOAL * 1000:.0f}"
            times = f"{seconds * 1000:>8.0f} {processor * 1000:>8.0f}"
            print(f"{times} {memory:>6.0f} {lines:>8}  {' '.join(words)}{verdict}", flush=True)


if __name__ == "__main__":
    main()
