"""Command ``det experiment``, which creates, stops, resumes, shows and organizes experiments."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from det_core.cli._command_table import (
    CHANGES,
    CSV,
    EXPERIMENT_ID,
    FILTERS,
    FOLLOW,
    JSON,
    LIMIT,
    OUTPUT,
    REVERSE,
    WHERE,
    YES,
    Command,
    OpenChoices,
    add_commands,
    make_argument,
)
from det_core.cli.commands import _experiment_control, _experiment_edit, _metrics_output
from det_core.cli.commands._listings import (
    CHECKPOINT_LIST_ARGUMENTS,
    TRIAL_LIST_ARGUMENTS,
    list_checkpoints,
    list_trials,
)
from det_core.cli.commands._log_output import LOG_ARGUMENTS, print_logs
from det_core.cli.commands._states import exit_code as code_of
from det_core.cli.commands._states import state_option
from det_core.cli.render.printing import print_json, print_listing
from det_core.cli.render.records import (
    all_checkpoints,
    checkpoint_table,
    experiment_facts,
    experiment_row,
    experiment_table,
    origin_facts,
    trial_table,
)
from det_core.errors import DetError
from det_core.interfaces.records import EXPERIMENT_ORDERS, State, searcher_metric, sort_options
from det_core.text import join_sections, record_to_json
from det_core.tracking import open_store
from det_core.tracking.control import POLL_SECONDS, living_runner, settled_experiment


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the commands to the parser."""
    add_commands(parser, _COMMANDS)


def _list(args: argparse.Namespace) -> int:
    with open_store() as store:
        shown = store.experiments(
            states=[State(state) for state in args.states],
            name=args.name,
            label=args.label,
            archived=None if args.all else False,
            where=args.where,
            **sort_options(args.sort_by, EXPERIMENT_ORDERS),
            reverse=args.reverse,
            limit=args.limit,
            brief=True,
        )
        ids = [one.id for one in shown]
        holders, seconds = store.lease_holders(ids), store.running_seconds(ids)
    runners = {one.id: living_runner(holders.get(one.id)) for one in shown if not one.state.final}
    rows = ({**experiment_row(one), "runner": runners.get(one.id)} for one in shown)
    narrowed = args.where or args.states or args.name is not None or args.label is not None
    none = "No matching experiments." if narrowed else "No experiments yet. To train one: det run CONFIG"
    print_listing(args, rows, lambda: experiment_table(shown, runners, seconds) if shown else none)
    return 0


def _describe(args: argparse.Namespace) -> int:
    _metrics_output.check_metrics_options(args)
    with open_store() as store:
        experiment = store.experiment(args.experiment_id)
        results = store.trial_results(experiment.id)
        found = _metrics_output.select_reports(store, [result.trial.id for result in results], args)
        if args.csv:
            _metrics_output.print_metrics_csv(found)
            return 0
        checkpoints = all_checkpoints(store, experiment_id=experiment.id)
        runner = living_runner(store.lease_holder(experiment.id))
        version = store.code_versions([experiment.id]).get(experiment.id)
        summary = store.experiment_summaries([experiment.id])[experiment.id]
        if args.json:
            parts = {
                "slot_hours": summary.slot_hours,
                "uncounted_runs": summary.uncounted_runs,
                "code_version": version,
                "trials": [result.trial for result in results],
                **({"metrics": found} if args.metrics else {}),
            }
            print_json(record_to_json(experiment, runner=runner, checkpoints=checkpoints, **parts))
            return 0
        metric, _ = searcher_metric(experiment.config)
        diverged = store.divergences([result.trial.id for result in results], metric, group="validation")
        tables = trial_table(results, experiment.config, diverged), checkpoint_table(checkpoints)
        facts = experiment_facts(experiment, summary, runner), origin_facts(version, None)
        print(join_sections(*facts, *tables))
        if args.metrics:
            _metrics_output.print_metrics_lines(found)
    return 0


def _config(args: argparse.Namespace) -> int:
    with open_store() as store:
        experiment = store.experiment(args.experiment_id)
    if args.original:
        print(experiment.original_config.rstrip("\n"))
    else:
        from det_core.config._yaml import dump_yaml

        print(dump_yaml(dict(experiment.config)), end="")
    return 0


def _download_model_def(args: argparse.Namespace) -> int:
    from det_core.experimental._downloads import atomic_directory
    from det_core.launch.context_archive import unpack_context_dir

    target: Path = args.directory or Path(f"experiment_{args.experiment_id}_model_def")
    with open_store() as store:
        content = store.model_definition(args.experiment_id)
    if not content:
        raise DetError(f"experiment {args.experiment_id} was recorded by a script, without its code")
    with atomic_directory(target) as files:
        files.mkdir()
        unpack_context_dir(content, files)
    if args.json:
        print_json({"id": args.experiment_id, "path": target.absolute()})
    else:
        print(f"The code of experiment {args.experiment_id} is in {target}")
    return 0


def _plot(args: argparse.Namespace) -> int:
    from det_core.cli.commands._experiment_plot import run_plot

    return run_plot(args)


def _delete(args: argparse.Namespace) -> int:
    from det_core.cli.commands._experiment_delete import run_delete

    return run_delete(args)


def _wait(args: argparse.Namespace) -> int:
    deadline = time.monotonic() + args.timeout
    with open_store() as store:
        while (experiment := settled_experiment(store, args.experiment_id)) is None:
            if time.monotonic() >= deadline:
                raise DetError(
                    f"experiment {args.experiment_id} has not ended after {args.timeout:g} s; "
                    "to wait longer, raise --timeout"
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
        store.experiment(args.experiment_id)
        print_logs(store, args.experiment_id, args)
    return 0


_COMMANDS = (
    Command(
        "create",
        _experiment_control.run_create,
        "record an experiment and train it in the background",
        (
            make_argument("config", type=Path, metavar="CONFIG", help="the experiment config, in YAML"),
            make_argument("directory", type=Path, metavar="CONTEXT_DIR", help="the directory with your code"),
            make_argument(
                "--test",
                "--test-mode",
                action="store_true",
                help="only test one batch in this process, and keep no records or files",
                group=FILTERS,
            ),
            CHANGES,
            FOLLOW,
            JSON,
        ),
        example="const.yaml . --follow\nconst.yaml . --config hyperparameters.lr=0.1",
    ),
    Command(
        "resume",
        _experiment_control.run_resume,
        "continue an experiment from the latest checkpoint",
        (
            EXPERIMENT_ID,
            make_argument(
                "--from-beginning",
                action="store_true",
                help="restart trials that have lost all their checkpoints; without this option they wait",
            ),
            FOLLOW,
            JSON,
        ),
        ("activate",),
        example="3 --follow",
    ),
    Command(
        "continue",
        _experiment_control.run_continue,
        "train an experiment that has ended further, or start a new one from one of its checkpoints",
        (
            EXPERIMENT_ID,
            CHANGES,
            make_argument(
                "--checkpoint",
                metavar="UUID",
                help="create a new experiment with one trial that starts from this checkpoint",
            ),
            FOLLOW,
            JSON,
        ),
        example="3 --config 'searcher.max_length={epochs: 40}'\n3 --checkpoint UUID --config hyperparameters.lr=0.01",
    ),
    Command(
        "pause",
        _experiment_control.run_pause,
        "save a checkpoint and stop; resume continues",
        (EXPERIMENT_ID, JSON),
        example="3",
    ),
    Command(
        "cancel",
        _experiment_control.run_cancel,
        "save a checkpoint and stop permanently",
        (EXPERIMENT_ID, JSON),
        example="3",
    ),
    Command(
        "kill",
        _experiment_control.run_kill,
        "stop immediately, without a checkpoint",
        (EXPERIMENT_ID, JSON),
        example="3",
    ),
    Command(
        "list",
        _list,
        "list experiments, newest first",
        (
            make_argument("--name", metavar="TEXT", help="only experiments whose name contains TEXT", group=FILTERS),
            make_argument("--label", metavar="LABEL", help="only experiments with this label", group=FILTERS),
            state_option(),
            WHERE,
            make_argument("--all", "-a", action="store_true", help="include archived experiments", group=FILTERS),
            make_argument(
                "--sort-by",
                choices=OpenChoices(EXPERIMENT_ORDERS),
                default="id",
                metavar="ORDER",
                help=f"{', '.join(EXPERIMENT_ORDERS)}, or a hyperparameter or metric, least first; "
                "default: id, newest first",
                group=OUTPUT,
            ),
            REVERSE,
            LIMIT,
            CSV,
            JSON,
        ),
        ("ls",),
        example="--state ACTIVE --label baseline --sort-by started\n--where 'lr < 0.01 and best >= 0.9'",
    ),
    Command(
        "describe",
        _describe,
        "show an experiment with its trials and checkpoints",
        (EXPERIMENT_ID, *_metrics_output.METRICS_ARGUMENTS, JSON),
        example="3 --metrics --csv",
    ),
    Command(
        "trials",
        list_trials,
        "list the trials of an experiment with their progress and metrics",
        (EXPERIMENT_ID, *TRIAL_LIST_ARGUMENTS),
        ("list-trials",),
        example="3 --sort-by best --limit 10\n3 --where 'lr < 0.01' --sort-by accuracy",
    ),
    Command(
        "checkpoints",
        list_checkpoints,
        "list the checkpoints of an experiment",
        (EXPERIMENT_ID, *CHECKPOINT_LIST_ARGUMENTS),
        ("list-checkpoints",),
        example="3 --best",
    ),
    Command(
        "plot",
        _plot,
        "draw the learning curves of the trials of an experiment",
        (
            EXPERIMENT_ID,
            make_argument(
                "-o",
                "--output",
                type=Path,
                metavar="FILE",
                help="a .png, .svg or .pdf file; default: experiment_ID.png",
            ),
            make_argument(
                "--metric",
                action="append",
                default=[],
                dest="metrics",
                metavar="NAME",
                help="metric to draw; may be repeated; default: the searcher's metric and the training loss",
            ),
            make_argument("--log", action="store_true", help="use a logarithmic axis for the metrics"),
            JSON,
        ),
        example="3 -o curves.png --metric loss --log",
    ),
    Command(
        "config",
        _config,
        "print the complete config of an experiment, in YAML; secrets are references to their files",
        (
            EXPERIMENT_ID,
            make_argument(
                "--original", action="store_true", help="print the config as it was written, without defaults"
            ),
        ),
        example="3 --original",
    ),
    Command(
        "download-model-def",
        _download_model_def,
        "copy the code of an experiment into a directory",
        (
            EXPERIMENT_ID,
            make_argument(
                "directory",
                type=Path,
                nargs="?",
                metavar="DIR",
                help="a new or empty directory; default: experiment_ID_model_def",
            ),
            JSON,
        ),
        example="3 code",
    ),
    *_experiment_edit.EDIT_COMMANDS,
    Command(
        "delete",
        _delete,
        "delete experiments with their checkpoints and records",
        (
            make_argument(
                "experiment_ids", type=int, nargs="+", metavar="EXPERIMENT_ID", help=EXPERIMENT_ID.options["help"]
            ),
            YES,
            JSON,
        ),
        example="3 4 5",
    ),
    Command(
        "wait",
        _wait,
        "wait until an experiment ends or pauses; the exit code is 0 if it completed",
        (
            EXPERIMENT_ID,
            make_argument(
                "--timeout", type=float, default=float("inf"), metavar="SECONDS", help="fail after this time"
            ),
            JSON,
        ),
        example="3 --timeout 600",
    ),
    Command(
        "logs",
        _logs,
        "print the output of the trials of an experiment",
        (EXPERIMENT_ID, *LOG_ARGUMENTS, JSON),
        example="3 --follow",
    ),
)
