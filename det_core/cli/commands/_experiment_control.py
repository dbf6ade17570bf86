"""``det experiment`` commands that start and stop experiments."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

from det_core.cli._command_table import INTERRUPTED
from det_core.cli.commands._secret_prompt import ask_for_secrets
from det_core.cli.commands._states import exit_code
from det_core.cli.commands.run import print_summary, read_config, submit_config_file
from det_core.cli.render.experiment_progress import AnyWatcher, create_watcher, show_progress
from det_core.cli.render.formats import print_json
from det_core.cli.render.records import experiment_row
from det_core.cli.render.trial_watcher import follow_experiment
from det_core.errors import DetError
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import control, open_store


def run_create(args: argparse.Namespace) -> int:
    """Record an experiment and start its runner. With ``--test``, train one batch in this process instead."""
    config = read_config(args.config, args.changes)
    if args.test:
        from det_core.cli.commands._experiment_test_mode import run_one_batch_test

        return run_one_batch_test(config, args.config, args.directory, as_json=args.json)
    with open_store() as store:
        experiment = submit_config_file(store, config, args.config, args.directory, args.changes)
        return _start(store, create_watcher(store, experiment.id), "Created", args)


def run_resume(args: argparse.Namespace) -> int:
    """Start a runner for an experiment that stopped. Its earlier output is not shown again.

    Raises:
        DetError: the experiment has completed, or no runner can run it.
    """
    from det_core.runner import ExperimentRunner

    with open_store() as store:
        experiment = store.experiment(args.experiment_id)
        if experiment.state is State.COMPLETED:
            raise DetError(
                f"experiment {experiment.id} is COMPLETED, so there is nothing to resume; "
                f"to train it further: det experiment continue {experiment.id} --config searcher.max_length=LENGTH"
            )
        if sys.stdin.isatty() and not experiment.unmanaged:
            ask_for_secrets(experiment.config)
        ExperimentRunner(store, experiment.id)  # raises an error if no runner can run it, before a process is started
        watcher = create_watcher(store, experiment.id)
        watcher.poll()
        return _start(store, watcher, "Resumed", args, from_beginning=args.from_beginning)


def run_continue(args: argparse.Namespace) -> int:
    """Train an ended experiment further, or start a new one from one of its checkpoints.

    Raises:
        DetError: the experiment cannot continue. The message says why.
    """
    from det_core import runner

    with open_store() as store:
        if sys.stdin.isatty():
            ask_for_secrets(store.experiment(args.experiment_id).config)
        if args.checkpoint is None:
            experiment = runner.continue_experiment(store, args.experiment_id, args.changes)
        else:
            experiment = runner.fork_experiment(store, args.experiment_id, args.checkpoint, args.changes)
        watcher = create_watcher(store, experiment.id)
        watcher.poll()
        return _start(store, watcher, "Continued" if args.checkpoint is None else "Created", args)


def run_pause(args: argparse.Namespace) -> int:
    """Ask the runner to save a checkpoint and pause."""
    return _ask(args, State.PAUSED, "save a checkpoint and pause")


def run_cancel(args: argparse.Namespace) -> int:
    """Ask the runner to save a checkpoint and stop permanently."""
    return _ask(args, State.STOPPING_CANCELED, "save a checkpoint and stop")


def run_kill(args: argparse.Namespace) -> int:
    """Ask the runner to stop immediately, without a checkpoint."""
    return _ask(args, State.STOPPING_KILLED, "stop immediately")


def _start(
    store: TrackingStore, watcher: AnyWatcher, done: str, args: argparse.Namespace, *, from_beginning: bool = False
) -> int:
    from det_core.runner import start_detached

    identity = watcher.experiment.id
    if not args.json:
        print(f"{done} experiment {identity}", flush=True)
    start_detached(store, identity, from_beginning=from_beginning)
    if args.follow:
        return _attach(store, watcher, as_json=args.json)
    if args.json:
        print_json(experiment_row(store.experiment(identity)))
    return 0


def _attach(store: TrackingStore, watcher: AnyWatcher, *, as_json: bool) -> int:
    identity = watcher.experiment.id
    try:
        with nullcontext(lambda: None) if as_json else show_progress(watcher) as tick:
            experiment = follow_experiment(store, identity, tick)
    except KeyboardInterrupt:
        if as_json:
            raise
        print(f"\nNo longer watching; experiment {identity} continues.")
        print(f"  to watch it: det experiment logs {identity} --follow")
        print(f"  to stop it:  det experiment pause {identity}")
        return INTERRUPTED
    print_summary(store, identity, as_json=as_json)
    return exit_code(experiment.state)


def _ask(args: argparse.Namespace, state: State, what: str) -> int:
    identity: int = args.experiment_id
    with open_store() as store:
        experiment = control.request_experiment_stop(store, identity, state)
    if args.json:
        print_json(experiment_row(experiment))
    else:
        print(f"Asked experiment {identity} to {what}")
    return 0
