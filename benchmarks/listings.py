"""Cost of listings, plots and curves of a large tracking store.

The store has 10,000 experiments. One has 1,000 trials with 1,000 reports and 10 checkpoints each, one has a trial with
1,000,000 reports, and one has 40 trials with 2,000 reports each. Commands run on SQLite, in a process that has started
already. The calls that pages make also run on PostgreSQL, if it is installed. Goals are limits of CPU time for SQLite
and of wall-clock time for PostgreSQL, whose server is another process.

    python benchmarks/listings.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from det_core.config import parse_config
from det_core.interfaces.records import State, TrialOrder
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store
from det_core.tracking._schema import checkpoints, experiments, metrics, trials
from tests.postgresql import BINARIES, running_postgresql

EXPERIMENTS = 10_000
WIDE, LONG, MANY = (1000, 1000), (1, 1_000_000), (40, 2000)
"""Number of trials of an experiment, and of the reports of each. One report in ten is a validation."""
CHECKPOINTS = 10
"""Number of checkpoints of each trial of the first experiment."""
LISTING, PLOT, CURVES, PAGE, TAIL = 0.5, 2.0, 0.1, 0.05, 0.001
"""Goals in seconds."""
ROUNDS = 3

COMMANDS = {
    "experiment list": LISTING,
    "experiment list --json": LISTING,
    "experiment list --label 7 --limit 20": LISTING,
    "experiment describe 1": LISTING,
    "experiment describe 1 --json": LISTING,
    "experiment trials 1 --sort-by best": LISTING,
    "experiment checkpoints 1 --best": LISTING,
    "trial list 1 --state COMPLETED --sort-by latest --limit 10": LISTING,
    "trial describe 500": LISTING,
    "trial describe 1001": LISTING,
    "trial describe 1001 --metrics --group validation --after 999000 --csv": LISTING,
    "checkpoint list": LISTING,
    "checkpoint list 1 --best --limit 100": LISTING,
    "checkpoint list --trial 500": LISTING,
    "checkpoint describe 500-10": LISTING,
    "model list": LISTING,
    "experiment plot 1 -o {home}/curves.png": PLOT,
    "experiment plot 1 --metric loss -o {home}/curves.png": PLOT,
    "experiment plot 2 -o {home}/curves.png": PLOT,
    "experiment plot 2 --metric loss -o {home}/curves.png": PLOT,
}
"""Arguments -> goal in seconds."""

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


def fill(store: TrackingStore) -> None:
    """Multiply a few records in SQL, because recording them one by one would take an hour."""
    searcher = {"name": "random", "metric": "validation_loss", "max_trials": 1000, "max_length": {"batches": 1000}}
    space = {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": 0}, "hidden": 64}
    config = parse_config({"entrypoint": "model:Trial", "searcher": searcher, "hyperparameters": space}).dump()
    for number, (count, reports) in enumerate((WIDE, LONG, MANY), 1):
        experiment = store.create_experiment(config=config)
        trial = store.create_trial(experiment.id, hparams={"lr": 0.1}, seed=0)
        store.start_run(trial.id, allocation_id="benchmark")
        store.set_trial_state(trial.id, State.COMPLETED)
        i = _series(count - 1).c.i
        name, hparams = _text(f"{number}.", i), _text('{"lr":', 1.0 / (i + 1), "}")
        with store._database.write() as connection:  # type: ignore[attr-defined]
            _multiply(connection, trials, trial.id, i, task_id=name, hparams=hparams)
            connection.execute(sa.update(trials).values(steps_completed=reports))
            _add_reports(connection, experiment.id, reports)
    trial = store.trials(1)[0]
    store.begin_checkpoint("first", trial_id=trial.id, run_id=1, storage={"type": "directory"})
    files = {f"part-{part}": 1000 for part in range(5)}
    store.complete_checkpoint("first", run_id=1, steps_completed=0, resources=files, metadata={})
    i = _series(EXPERIMENTS - 3).c.i
    with store._database.write() as connection:  # type: ignore[attr-defined]
        part = _series(CHECKPOINTS).c.i
        each = sa.select(trials.c.id, part).join_from(trials, part.table, trials.c.experiment_id == 1).subquery().c
        uuid, step = _text("", each.id, "-", each.i), each.i * 100
        _multiply(connection, checkpoints, 1, each.id, trial_id=each.id, steps_completed=step, uuid=uuid)
        labels, state = _text('["', i % 10, '"]'), sa.case((i % 10 == 0, "QUEUED"), else_="COMPLETED")
        _multiply(
            connection, experiments, 1, i, state=state, name=_text("small ", i), job_id=_text("", i), labels=labels
        )


def _series(count: int) -> sa.CTE:
    """Select the numbers from 1 to ``count``."""
    first = sa.select(sa.literal(1).label("i")).where(sa.literal(count) > 0).cte(recursive=True)
    return first.union_all(sa.select(first.c.i + 1).where(first.c.i < count))


def _text(*parts: Any) -> sa.ColumnElement[str]:
    """Concatenate the parts in SQL."""
    whole: Any = sa.literal("", sa.Text)
    for part in parts:
        whole = whole + (sa.literal(part, sa.Text) if isinstance(part, str) else sa.cast(part, sa.Text))
    return whole


def _multiply(connection: sa.Connection, table: sa.Table, row: int, by: Any, **changed: Any) -> None:
    """Copy a row once for each row of the table of ``by``, with some columns changed."""
    names = [column.name for column in table.columns if column.name != "id"]
    copies = sa.select(*(changed.get(name, table.c[name]) for name in names)).join_from(table, by.table, sa.true())
    connection.execute(table.insert().from_select(names, copies.where(table.c.id == row)))


def _add_reports(connection: sa.Connection, experiment_id: int, reports: int) -> None:
    step = _series(reports).c.i
    loss = 1.0 / step + (step % 1000 * 7919 % 1000) / 1e4
    columns = ("trial_id", "run_id", "steps_completed", "group", "metrics", "time", "archived", "searcher_metric")
    for group, chosen, text, value in (
        ("training", step % 10 != 0, _text('{"loss":', loss, ',"accuracy":0.5,"lr":0.001}'), sa.null()),
        ("validation", step % 10 == 0, _text('{"validation_loss":', loss, "}"), loss),
    ):
        row = (trials.c.id, trials.c.run_id, step, sa.literal(group), text, trials.c.start_time, sa.false(), value)
        rows = sa.select(*row).join_from(trials, step.table, chosen).where(trials.c.experiment_id == experiment_id)
        connection.execute(metrics.insert().from_select(columns, rows.order_by(trials.c.id, step)))


def measure(command: list[str]) -> tuple[float, float, float, int]:
    """Return the wall-clock seconds of a command without start-up, its CPU seconds, peak MiB and number of lines."""
    run = subprocess.run([sys.executable, "-c", MEASURE, str(ROUNDS), *command], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stdout + run.stderr)
    seconds, processor, memory, lines = json.loads(run.stdout.splitlines()[-1])
    return seconds, processor, memory, lines


def verdict(seconds: float, goal: float) -> str:
    return f"goal {goal * 1000:>5.0f}{'' if seconds <= goal else '  MISSED'}"


def pages(store: TrackingStore, clock: Callable[[], float]) -> None:
    """Print the times that the queries of pages take, and those of reading the same rows bare."""
    page = [experiment.id for experiment in store.experiments(limit=50, reverse=True)]
    wide = [trial.id for trial in store.trials(1)]
    cursor = store.changes().cursor
    many, (long,) = ([trial.id for trial in store.trials(number)] for number in (3, 2))
    rows = (
        sa.select(metrics.c.trial_id, metrics.c.steps_completed, sa.type_coerce(metrics.c.metrics, sa.Text))
        .where(metrics.c.trial_id.in_(many), metrics.c.archived == sa.false(), metrics.c.group == "training")
        .order_by(metrics.c.trial_id, metrics.c.steps_completed)
    )

    def bare() -> int:
        with store._database.read() as connection:  # type: ignore[attr-defined]
            return len(connection.execute(rows).all())

    def read(trials: Sequence[int], metric: str, points: int, extremes: bool = False) -> Callable[[], int]:
        which: dict[str, Any] = {"group": "training", "points": points, "extremes": extremes}
        return lambda: sum(map(len, store.curves(trials, metric, **which).values()))

    cases: dict[str, tuple[Callable[[], int], float | None]] = {
        "50 experiments": (lambda: len(store.experiments(limit=50)), PAGE),
        "50 of 10,000 by progress": (
            lambda: len(store.experiments(limit=50, order="progress", archived=False)),
            PAGE,
        ),
        "count by label": (lambda: store.count_experiments(label="7", archived=False), PAGE),
        "summaries of 50 experiments": (lambda: len(store.experiment_summaries(page)), PAGE),
        "100 best of 1000 trials": (lambda: len(store.trial_results(1, order=TrialOrder.BEST, limit=100)), PAGE),
        "names of metrics of 1000 trials": (lambda: len(store.metric_names(wide)), PAGE),
        "changes, none": (lambda: len(store.changes(cursor).metrics), TAIL),
        "bare rows of 40 trials, undecoded": (bare, None),
        "40 trials, all points": (read(many, "loss", 2000), CURVES),
        "40 trials, 1000 points": (read(many, "loss", 1000), CURVES),
        "40 trials, 100 points": (read(many, "loss", 100), CURVES),
        "40 trials, 300 points, extremes": (read(many, "loss", 300, extremes=True), LISTING),
        "1,000,000 reports, 1000 points, extremes": (read([long], "loss", 1000, extremes=True), None),
        "1,000,000 reports, 1000 points": (read([long], "loss", 1000), CURVES),
        "1,000,000 reports without the metric": (read([long], "none", 1000), PLOT),
    }
    best = dict.fromkeys(cases, float("inf"))
    found = dict.fromkeys(cases, 0)
    for _ in range(ROUNDS):  # interleaved
        for name, (case, _) in cases.items():
            start = clock()
            found[name] = case()
            best[name] = min(best[name], clock() - start)
    for name, (_, goal) in cases.items():
        print(
            f"{best[name] * 1000:>8.1f} {found[name]:>8,} found  {name:42} {verdict(best[name], goal) if goal else ''}"
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ["DET_HOME"] = home
        start = time.perf_counter()
        with open_store() as store:
            fill(store)
            size = Path(home, "det.db").stat().st_size / 1e6
            print(f"SQLite, {size:,.0f} MB, written in {time.perf_counter() - start:.0f} s")
            print(f"{'ms':>8} {'CPU ms':>8} {'MiB':>6} {'lines':>8}  {'goal':10}  det ...", flush=True)
            for command, goal in COMMANDS.items():
                seconds, processor, memory, lines = measure(command.format(home=home).split())
                times = f"{seconds * 1000:>8.0f} {processor * 1000:>8.0f} {memory:>6.0f} {lines:>8}"
                print(f"{times}  {verdict(processor, goal):10}  {command.replace(home, '.')}", flush=True)
            print("CPU ms of calls of pages on SQLite")
            pages(store, time.process_time)
    if not (BINARIES / "postgres").exists():
        print(f"PostgreSQL is skipped, because it is not installed in {BINARIES}")
        return
    with running_postgresql() as server, open_store(server.create_database()) as store:
        fill(store)
        print("ms of calls of pages on PostgreSQL")
        pages(store, time.perf_counter)


if __name__ == "__main__":
    main()
