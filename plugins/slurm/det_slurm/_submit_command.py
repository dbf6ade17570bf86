"""Command ``det slurm``."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from det_slurm._config import SlurmConfig

_SAVE_SECONDS = 120
_SBATCH_VARIABLES = ("SBATCH_ARRAY_INX", "SBATCH_WAIT")
"""Variables with the effect of options that `det_slurm._reserved_options` forbids and that have no opposite."""
_EXAMPLE = "example: det slurm submit --time 4:00:00 const.yaml ."


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    parser.epilog = _EXAMPLE
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    text = "submit a job that runs an experiment, and that is requeued before its time limit"
    submit = commands.add_parser("submit", help=text, description=text, epilog=_EXAMPLE)
    submit.add_argument("config", type=Path, metavar="CONFIG", help="the experiment config, in YAML")
    submit.add_argument(
        "directory", type=Path, nargs="?", metavar="DIR", help="directory with your code; default: that of CONFIG"
    )
    submit.add_argument(
        "--slots",
        type=int,
        metavar="N",
        help="number of slots of the job, in which trials are steps; by default, trials are jobs of their own",
    )
    submit.add_argument(
        "--url", metavar="URL", help="tracking store, such as postgresql://det@db/det; default: det.db in DET_HOME"
    )
    submit.add_argument("--time", metavar="TIME", help="time limit of each run of the job, such as 4:00:00")
    submit.add_argument(
        "--save-seconds",
        type=int,
        default=_SAVE_SECONDS,
        metavar="S",
        help=f"seconds before the time limit at which trials save checkpoints (default: {_SAVE_SECONDS})",
    )
    submit.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="OPTION",
        help="further option of sbatch, such as --option=--mem-per-cpu=4G; may be repeated",
    )
    submit.add_argument(
        "--config",
        action="append",
        default=[],
        dest="changes",
        metavar="KEY=VALUE",
        help="set a key of the config, such as launcher.partition=gpu; may be repeated",
    )
    submit.add_argument("--json", action="store_true", help="print one JSON document")
    submit.set_defaults(run=_submit)


def _submit(args: argparse.Namespace) -> int:
    from det_core.config import load_config, note_changes
    from det_core.errors import LaunchError
    from det_core.home import home_directory, private_directory
    from det_core.runner import submit_experiment
    from det_core.tracking import open_store
    from det_slurm._config import SlurmConfig
    from det_slurm._reserved_options import SBATCH, explain_wrong_option
    from det_slurm._slurm_programs import STORE_VARIABLE, run_program

    if problem := next(filter(None, (explain_wrong_option(each, SBATCH) for each in args.option)), None):
        raise LaunchError(f"--option: {problem}")
    config = load_config(args.config, args.changes)
    for notice in config.notices:
        print(f"det: note: {args.config}: {notice}", file=sys.stderr)  # noqa: T201
    launcher = config.launcher.options
    if not isinstance(launcher, SlurmConfig):
        raise LaunchError(f"launcher.type is {config.launcher.type}, expected slurm; add --config launcher.type=slurm")
    resources = _allocation_options(launcher, args.slots) if args.slots else ["--ntasks=1"]
    for name in _SBATCH_VARIABLES:
        os.environ.pop(name, None)
    if args.url:
        os.environ[STORE_VARIABLE] = args.url  # all users could read an argument
    with open_store(args.url) as store:
        text = note_changes(args.config.read_text(encoding="utf-8"), args.changes, config.dump())
        experiment = submit_experiment(store, config, args.directory or args.config.parent, original_config=text)
        log = private_directory("runners") / f"{experiment.id}-of-{store.cluster_id}.log"
        mode = "steps" if args.slots else "jobs"
        runner = [sys.executable, "-m", "det_slurm._runner_job", str(experiment.id), mode, store.cluster_id]
        script = f"#!/bin/sh\nexport DET_HOME={shlex.quote(str(home_directory()))}\nexec {shlex.join(runner)}\n"
        answer = run_program(
            "sbatch",
            "--parsable",
            f"--job-name=det-{store.cluster_id}-experiment-{experiment.id}",
            "--requeue",
            "--open-mode=append",
            "--export=ALL",
            f"--output={log}",
            "--chdir=/",
            f"--signal=B:HUP@{args.save_seconds}",
            *([f"--time={args.time}"] if args.time else []),
            *launcher.job_options(),
            *resources,
            *args.option,
            given=script,
        )
    job = answer.strip().partition(";")[0]
    if args.json:
        print(json.dumps({"experiment_id": experiment.id, "job": job, "output": str(log)}))  # noqa: T201
    else:
        print(f"Created experiment {experiment.id}\nSubmitted Slurm job {job}; its output: {log}")  # noqa: T201
    return 0


def _allocation_options(launcher: SlurmConfig, slots: int) -> list[str]:
    """Return the options of a job that holds a number of slots."""
    from det_core.errors import LaunchError

    nodes = -(-slots // launcher.slots_per_node)
    if slots < 1 or slots % nodes:
        raise LaunchError(f"--slots {slots} are no whole nodes of launcher.slots_per_node {launcher.slots_per_node}")
    return [f"--nodes={nodes}", "--ntasks-per-node=1", *launcher.resource_options(slots // nodes)]
