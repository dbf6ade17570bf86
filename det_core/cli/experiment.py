"""``det experiment``: create, watch, stop and resume experiments."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from det_core.cli import _control
from det_core.cli._command import EXPERIMENT_ID, FOLLOW, FOLLOW_LOGS, JSON, METRICS, Command, add_commands, argument
from det_core.cli._command import exit_code as code_of
from det_core.cli._logs import print_logs
from det_core.cli._output import print_json
from det_core.cli._records import (
    all_checkpoints,
    all_metrics,
    checkpoint_table,
    document,
    experiment_facts,
    experiment_row,
    experiment_table,
    metrics_table,
    sections,
    trial_table,
)
from det_core.cli._watch import POLL_SECONDS, settled
from det_core.errors import DetError
from det_core.tracking import open_store


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    add_commands(parser, _COMMANDS)


def _list(args: argparse.Namespace) -> int:
    with open_store() as store:
        shown = [one for one in store.experiments() if args.all or not one.archived][: args.limit]
    if args.json:
        print_json(map(experiment_row, shown))
    else:
        print(experiment_table(shown) if shown else "No experiments yet. To train one: det run CONFIG")
    return 0


def _describe(args: argparse.Namespace) -> int:
    with open_store() as store:
        experiment = store.experiment(args.experiment_id)
        trials = store.trials(experiment.id)
        checkpoints = all_checkpoints(store, experiment_id=experiment.id)
        metrics = {"metrics": list(all_metrics(store, trials))} if args.metrics else {}
    if args.json:
        print_json(document(experiment, trials=trials, checkpoints=checkpoints, **metrics))
    else:
        tables = (trial_table(trials), checkpoint_table(checkpoints), *map(metrics_table, metrics.values()))
        print(sections(experiment_facts(experiment, store.lease_holder(experiment.id)), *tables))
    return 0


def _wait(args: argparse.Namespace) -> int:
    deadline = time.monotonic() + args.timeout
    with open_store() as store:
        while (experiment := settled(store, args.experiment_id)) is None:
            if time.monotonic() >= deadline:
                raise DetError(
                    f"experiment {args.experiment_id} goes on after {args.timeout:g} s; wait longer with --timeout"
                )
            time.sleep(POLL_SECONDS)
    if args.json:
        print_json(experiment_row(experiment))
    else:
        print(
            f"Experiment {experiment.id}: {experiment.state.value}"
            + (f": {experiment.error}" if experiment.error else "")
        )
    return code_of(experiment.state)


def _logs(args: argparse.Namespace) -> int:
    with open_store() as store:
        print_logs(store, args.experiment_id, follow=args.follow, as_json=args.json)
    return 0


_COMMANDS = (
    Command(
        "create",
        _control.create,
        "record an experiment and train it in the background",
        (
            argument("config", type=Path, metavar="CONFIG", help="the experiment config, in YAML"),
            argument("directory", type=Path, metavar="CONTEXT_DIR", help="the directory with your code"),
            argument(
                "--test", "--test-mode", action="store_true", help="only try one batch here, and leave nothing behind"
            ),
            FOLLOW,
            JSON,
        ),
    ),
    Command(
        "resume", _control.resume, "go on from the latest checkpoint", (EXPERIMENT_ID, FOLLOW, JSON), ("activate",)
    ),
    Command("pause", _control.pause, "checkpoint and stop; resume goes on", (EXPERIMENT_ID, JSON)),
    Command("cancel", _control.cancel, "checkpoint and stop for good", (EXPERIMENT_ID, JSON)),
    Command("kill", _control.kill, "stop now, without a checkpoint", (EXPERIMENT_ID, JSON)),
    Command(
        "list",
        _list,
        "list experiments, newest first",
        (
            argument("--limit", type=int, metavar="N", help="at most so many"),
            argument("--all", "-a", action="store_true", help="archived ones, too"),
            JSON,
        ),
        ("ls",),
    ),
    Command(
        "describe", _describe, "show an experiment with its trials and checkpoints", (EXPERIMENT_ID, METRICS, JSON)
    ),
    Command(
        "wait",
        _wait,
        "wait until it ends or pauses; exit code 0 if it completed",
        (
            EXPERIMENT_ID,
            argument("--timeout", type=float, default=float("inf"), metavar="SECONDS", help="fail after so long"),
            JSON,
        ),
    ),
    Command("logs", _logs, "print what its trials printed", (EXPERIMENT_ID, FOLLOW_LOGS, JSON)),
)
