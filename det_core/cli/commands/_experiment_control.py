"""``det experiment`` commands that start and stop experiments."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext, suppress
from getpass import getpass
from typing import TYPE_CHECKING

from det_core.cli._command_table import INTERRUPTED
from det_core.cli.commands._states import exit_code
from det_core.cli.render.printing import print_json
from det_core.cli.render.records import experiment_row
from det_core.errors import DetError
from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import control, is_server_url, open_store

if TYPE_CHECKING:
    from pathlib import Path

    from det_core.cli.render.experiment_progress import AnyWatcher


def run_create(args: argparse.Namespace) -> int:
    """Record an experiment and start its runner. With ``--test``, train one batch in this process instead."""
    from det_core.cli.commands.run import announce_config_file, read_config

    config = read_config(args.config, args.changes)
    if args.test:
        from det_core.cli.commands._experiment_test_mode import run_one_batch_test

        return run_one_batch_test(config, args.config, args.directory, as_json=args.json)
    from det_core import runner

    with open_store() as store:
        text = announce_config_file(config, args.config, args.directory, args.changes)
        started = _Start(store, "Created", args)
        runner.train_in_background(store, config, args.directory, original_config=text, recorded=started.announce)
        return started.finish()


def run_resume(args: argparse.Namespace) -> int:
    """Start a runner for an experiment that stopped. Its earlier output is not shown again.

    Raises:
        DetError: the experiment has completed, or no runner can run it.
    """
    from det_core import runner

    with open_store() as store:
        experiment = store.experiment(args.experiment_id)
        if experiment.state is State.COMPLETED:
            raise DetError(
                f"experiment {experiment.id} is COMPLETED, so there is nothing to resume; "
                f"to train it further: det experiment continue {experiment.id} --config searcher.max_length=LENGTH"
            )
        if not experiment.unmanaged:
            _ask_for_secrets(store, experiment)
        started = _Start(store, "Resumed", args, skips_output=True)
        runner.resume_in_background(store, experiment.id, from_beginning=args.from_beginning, recorded=started.announce)
        return started.finish()


def run_continue(args: argparse.Namespace) -> int:
    """Train an ended experiment further, or start a new one from one of its checkpoints.

    Raises:
        DetError: the experiment cannot continue. The message says why.
    """
    from det_core import runner

    with open_store() as store:
        _ask_for_secrets(store, store.experiment(args.experiment_id))
        started = _Start(store, "Continued" if args.checkpoint is None else "Created", args, skips_output=True)
        runner.continue_in_background(
            store, args.experiment_id, args.changes, checkpoint=args.checkpoint, recorded=started.announce
        )
        return started.finish()


def run_pause(args: argparse.Namespace) -> int:
    """Ask the runner to save a checkpoint and pause."""
    return _ask(args, State.PAUSED, "save a checkpoint and pause")


def run_cancel(args: argparse.Namespace) -> int:
    """Ask the runner to save a checkpoint and stop permanently."""
    return _ask(args, State.STOPPING_CANCELED, "save a checkpoint and stop")


def run_kill(args: argparse.Namespace) -> int:
    """Ask the runner to stop immediately, without a checkpoint."""
    return _ask(args, State.STOPPING_KILLED, "stop immediately")


class _Start:
    """Output of a command that starts the runner of an experiment.

    Args:
        store: the tracking store.
        done: what the command does, in the past tense.
        args: arguments of the command.
        skips_output: whether not to show again what the experiment has printed before.
    """

    def __init__(
        self, store: TrackingStore, done: str, args: argparse.Namespace, *, skips_output: bool = False
    ) -> None:
        self._store = store
        self._done = done
        self._args = args
        self._skips_output = skips_output

    def announce(self, experiment: ExperimentRecord) -> None:
        """Print the id of the experiment, which is recorded."""
        from det_core.cli.render.experiment_progress import create_watcher

        self._watcher = create_watcher(self._store, experiment.id)
        if self._skips_output:
            self._watcher.poll()
        if not self._args.json:
            print(f"{self._done} experiment {experiment.id}", flush=True)

    def finish(self) -> int:
        """Show the training if this is wanted, and return the exit code."""
        if self._args.follow:
            return _attach(self._store, self._watcher, as_json=self._args.json)
        if self._args.json:
            print_json(experiment_row(self._store.experiment(self._watcher.experiment.id)))
        return 0


def _ask_for_secrets(store: TrackingStore, experiment: ExperimentRecord) -> None:
    """Ask the person at the terminal for each missing secret once, and write its file. A det server has them itself."""
    if not sys.stdin.isatty() or is_server_url(store.url):
        return
    from det_core.tracking.printable import printable_text
    from det_core.tracking.secret_files import find_missing_secrets, write_secret

    files: dict[str, dict[str, Path]] = {}  # by the id of the secret
    for place, path in find_missing_secrets(experiment.config).items():
        files.setdefault(path.name.partition("-")[0], {})[place] = path
    with suppress(EOFError):  # Ctrl-D skips the remaining secrets, and resume reports that they are missing
        for places in files.values():
            place, path = next(iter(places.items()))
            if secret := getpass(printable_text(f"{place} is not in {path}. Its value: ")):
                for path in places.values():
                    write_secret(path, secret)


def _attach(store: TrackingStore, watcher: AnyWatcher, *, as_json: bool) -> int:
    from det_core.cli.commands.run import print_summary
    from det_core.cli.render.experiment_progress import show_progress
    from det_core.cli.render.trial_watcher import follow_experiment

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
