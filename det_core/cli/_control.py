"""``det experiment`` commands that start and stop experiments."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

from det_core.cli._command import INTERRUPTED
from det_core.cli._output import print_json
from det_core.cli._records import experiment_row
from det_core.cli._secrets import ask_for_secrets
from det_core.cli._states import exit_code
from det_core.cli._view import Watch, show, watch
from det_core.cli._watch import follow
from det_core.cli.run import read_config, report, submit
from det_core.errors import DetError
from det_core.interfaces.tracking import State, TrackingStore
from det_core.tracking import control, open_store


def create(args: argparse.Namespace) -> int:
    """Record an experiment and start its runner. With ``--test``, train one batch in this process instead."""
    config = read_config(args.config, args.changes)
    if args.test:
        from det_core.cli._try_out import try_out

        return try_out(config, args.config, args.directory, as_json=args.json)
    with open_store() as store:
        experiment = submit(store, config, args.config, args.directory, args.changes)
        return _start(store, watch(store, experiment.id), "Created", args)


def resume(args: argparse.Namespace) -> int:
    """Start a runner for an experiment that stopped. Its earlier output is not shown again.

    Raises:
        DetError: the experiment has completed, or no runner can run it.
    """
    from det_core.runner import ExperimentRunner

    with open_store() as store:
        experiment = store.experiment(args.experiment_id)
        if experiment.state is State.COMPLETED:
            raise DetError(f"experiment {experiment.id} is COMPLETED, so there is nothing to resume")
        if sys.stdin.isatty() and not experiment.unmanaged:
            ask_for_secrets(experiment.config)
        ExperimentRunner(store, experiment.id)  # raises an error if no runner can run it, before a process is started
        watcher = watch(store, experiment.id)
        watcher.poll()
        return _start(store, watcher, "Resumed", args, from_beginning=args.from_beginning)


def pause(args: argparse.Namespace) -> int:
    """Ask the runner to save a checkpoint and pause."""
    return _ask(args, State.PAUSED, "save a checkpoint and pause")


def cancel(args: argparse.Namespace) -> int:
    """Ask the runner to save a checkpoint and stop permanently."""
    return _ask(args, State.STOPPING_CANCELED, "save a checkpoint and stop")


def kill(args: argparse.Namespace) -> int:
    """Ask the runner to stop immediately, without a checkpoint."""
    return _ask(args, State.STOPPING_KILLED, "stop immediately")


def _start(
    store: TrackingStore, watcher: Watch, done: str, args: argparse.Namespace, *, from_beginning: bool = False
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


def _attach(store: TrackingStore, watcher: Watch, *, as_json: bool) -> int:
    identity = watcher.experiment.id
    try:
        with nullcontext(lambda: None) if as_json else show(watcher) as tick:
            experiment = follow(store, identity, tick)
    except KeyboardInterrupt:
        if as_json:
            raise
        print(f"\nNo longer watching; experiment {identity} continues.")
        print(f"  to watch it: det experiment logs {identity} --follow")
        print(f"  to stop it:  det experiment pause {identity}")
        return INTERRUPTED
    report(store, identity, as_json=as_json)
    return exit_code(experiment.state)


def _ask(args: argparse.Namespace, state: State, what: str) -> int:
    identity: int = args.experiment_id
    with open_store() as store:
        experiment = control.ask(store, identity, state)
    if args.json:
        print_json(experiment_row(experiment))
    else:
        print(f"Asked experiment {identity} to {what}")
    return 0
