"""``det trial``: look at trials."""

from __future__ import annotations

import argparse

from det_core.cli._command import FOLLOW_LOGS, JSON, METRICS, TRIAL_ID, Command, add_commands
from det_core.cli._logs import print_logs
from det_core.cli._output import print_json
from det_core.cli._records import (
    all_checkpoints,
    checkpoint_table,
    document,
    metrics_table,
    sections,
    system_table,
    trial_facts,
)
from det_core.tracking import open_store


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands."""
    add_commands(parser, _COMMANDS)


def _describe(args: argparse.Namespace) -> int:
    with open_store() as store:
        trial = store.trial(args.trial_id)
        checkpoints = all_checkpoints(store, trial_id=trial.id)
        metrics = list(store.metrics(trial.id)) if args.metrics else []
        system = store.system_metrics(trial.id) if args.metrics else []
    if args.json:
        wanted = {"metrics": metrics, "system_metrics": system} if args.metrics else {}
        print_json(document(trial, checkpoints=checkpoints, **wanted))
    else:
        tables = (metrics_table(metrics), system_table(system)) if args.metrics else ()
        print(sections(trial_facts(trial), checkpoint_table(checkpoints), *tables))
    return 0


def _logs(args: argparse.Namespace) -> int:
    with open_store() as store:
        trial = store.trial(args.trial_id)
        print_logs(store, trial.experiment_id, trial_id=trial.id, follow=args.follow, as_json=args.json)
    return 0


_COMMANDS = (
    Command("describe", _describe, "show a trial with its checkpoints", (TRIAL_ID, METRICS, JSON)),
    Command("logs", _logs, "print what it printed", (TRIAL_ID, FOLLOW_LOGS, JSON)),
)
