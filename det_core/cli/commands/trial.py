"""Command ``det trial``, which shows and kills trials and downloads their checkpoints."""

from __future__ import annotations

import argparse
from pathlib import Path

from det_core.cli._command_table import EXPERIMENT_ID, JSON, TRIAL_ID, Command, UsageError, add_commands, make_argument
from det_core.cli.commands import _metrics_output
from det_core.cli.commands._download import download_to
from det_core.cli.commands._listings import TRIAL_LIST_ARGUMENTS, list_trials
from det_core.cli.commands._log_output import LOG_ARGUMENTS, print_logs
from det_core.cli.render.experiment_summary import best_checkpoint
from det_core.cli.render.printing import print_json
from det_core.cli.render.records import all_checkpoints, checkpoint_table, origin_facts, system_table, trial_facts
from det_core.errors import DetError
from det_core.interfaces.records import CheckpointRecord, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.text import join_sections, record_to_json
from det_core.tracking import control, open_store

_MOST_MACHINES = 1000
"""Maximum number of machines, those of the newest runs first, that are printed as JSON."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands to the parser."""
    add_commands(parser, _COMMANDS)


def _describe(args: argparse.Namespace) -> int:
    _metrics_output.check_metrics_options(args)
    with open_store() as store:
        trial = store.trial(args.trial_id)
        found = _metrics_output.select_reports(store, [trial.id], args)
        if args.csv:
            _metrics_output.print_metrics_csv(found)
            return 0
        checkpoints = all_checkpoints(store, trial_id=trial.id)
        system = store.system_metrics(trial.id) if args.metrics else []
        version = store.code_versions([trial.experiment_id]).get(trial.experiment_id)
        machine = store.newest_machines([trial.id]).get(trial.id)
        if args.json:
            wanted = {"metrics": found, "system_metrics": system} if args.metrics else {}
            origin = {"code_version": version, "machines": store.machines(trial.id, limit=_MOST_MACHINES, brief=True)}
            packages = machine.packages if machine else {}
            print_json(record_to_json(trial, checkpoints=checkpoints, **origin, packages=packages, **wanted))
            return 0
        config = store.experiment(trial.experiment_id).config
        facts = (trial_facts(trial, config), origin_facts(version, machine))
        print(join_sections(*facts, checkpoint_table(checkpoints), system_table(system)))
        if args.metrics:
            _metrics_output.print_metrics_lines(found)
    return 0


def _logs(args: argparse.Namespace) -> int:
    with open_store() as store:
        trial = store.trial(args.trial_id)
        print_logs(store, trial.experiment_id, args, trial_id=trial.id)
    return 0


def _kill(args: argparse.Namespace) -> int:
    with open_store() as store:
        trial = control.request_trial_kill(store, args.trial_id)
    if args.json:
        print_json(trial)
    else:
        print(f"Asked trial {trial.id} to stop immediately")
    return 0


def _download(args: argparse.Namespace) -> int:
    if args.best and args.latest:
        raise UsageError("--best and --latest exclude each other; give one of them")
    with open_store() as store:
        checkpoint = _chosen(store, store.trial(args.trial_id), latest=args.latest)
        return download_to(store, checkpoint, args.output, as_json=args.json)


def _chosen(store: TrackingStore, trial: TrialRecord, *, latest: bool) -> CheckpointRecord:
    completed = store.checkpoints(trial_id=trial.id)
    if not completed:
        raise DetError(f"trial {trial.id} has no completed checkpoint")
    if latest:
        return completed[-1]
    best = best_checkpoint(store, trial.experiment_id, trial.id)
    if best is None:
        raise DetError(
            f"no checkpoint of trial {trial.id} has a validation, so none is known to be the best; "
            f"to get the latest: det trial download {trial.id} --latest"
        )
    return best[1]


_COMMANDS = (
    Command(
        "list",
        list_trials,
        "list the trials of an experiment with their progress and metrics",
        (EXPERIMENT_ID, *TRIAL_LIST_ARGUMENTS),
        ("ls",),
        example="3 --sort-by best",
    ),
    Command(
        "describe",
        _describe,
        "show a trial with its checkpoints",
        (TRIAL_ID, *_metrics_output.METRICS_ARGUMENTS, JSON),
        example="17 --metrics --group validation",
    ),
    Command(
        "logs", _logs, "print the output of a trial", (TRIAL_ID, *LOG_ARGUMENTS, JSON), example="17 --tail 100 --rank 1"
    ),
    Command(
        "kill",
        _kill,
        "stop a trial immediately, without a checkpoint; its experiment continues",
        (TRIAL_ID, JSON),
        example="17",
    ),
    Command(
        "download",
        _download,
        "copy the best checkpoint of a trial into a directory and verify it",
        (
            TRIAL_ID,
            make_argument("--best", action="store_true", help="the checkpoint with the best validation (the default)"),
            make_argument("--latest", action="store_true", help="the newest checkpoint instead"),
            make_argument(
                "-o", "--output", "--output-dir", type=Path, metavar="DIR", help="target; default: checkpoints/UUID"
            ),
            JSON,
        ),
        example="17 --latest -o best",
    ),
)
