"""Command ``det run``, which trains an experiment in this process and shows its progress."""

from __future__ import annotations

import argparse
import os
import signal
import stat
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from det_core.cli._command_table import CHANGES, HUNG_UP, INTERRUPTED, JSON, TERMINATED, make_argument, set_up_command

if TYPE_CHECKING:
    from det_core.config import ExperimentConfig
    from det_core.interfaces.records import ExperimentRecord
    from det_core.interfaces.tracking import TrackingStore

_ARGUMENTS = (
    make_argument("config", type=Path, metavar="CONFIG", help="the experiment config, in YAML"),
    make_argument(
        "directory", type=Path, nargs="?", metavar="DIR", help="directory with your code; default: that of CONFIG"
    ),
    CHANGES,
    JSON,
)
_STARTUP_HOOK = "startup-hook.sh"
"""Name of the script that containers run before the trial. There are no containers here, so it is not run."""
_SIGNALLED = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: HUNG_UP}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    set_up_command(parser, _run, _ARGUMENTS, "const.yaml\nconst.yaml code --config hyperparameters.lr=0.1")


def _run(args: argparse.Namespace) -> int:
    from det_core.launch.early_start import prepare_first_launch

    config = read_config(args.config, args.changes)
    directory = args.directory or args.config.parent
    prepare_first_launch(config, directory)
    from det_core.tracking import is_server_url, open_store  # late, as all that this process can import meanwhile

    with open_store() as store:
        if is_server_url(store.url):
            from det_core.runner import explain_storage, use_server_storage

            config = use_server_storage(config, store.url)
            print(explain_storage(config, store.url), file=sys.stderr if args.json else sys.stdout, flush=True)
        experiment = submit_config_file(store, config, args.config, directory, args.changes)
        if not args.json:
            print(f"Created experiment {experiment.id}", flush=True)
        code = train_in_foreground(store, experiment.id, quiet=args.json)
        print_summary(store, experiment.id, as_json=args.json)
    return code


def read_config(path: Path, changes: Sequence[str] = ()) -> ExperimentConfig:
    """Load an experiment config, and print its notices to stderr.

    Args:
        path: file of the config, in YAML.
        changes: changes of the config, each as ``KEY=VALUE``.

    Raises:
        ConfigError: the config is invalid.
    """
    from det_core.config import load_config

    config = load_config(path, changes)
    for notice in config.notices:
        print(f"det: note: {path}: {notice}", file=sys.stderr)
    return config


def submit_config_file(
    store: TrackingStore, config: ExperimentConfig, path: Path, directory: Path, changes: Sequence[str] = ()
) -> ExperimentRecord:
    """Record an experiment with its code and the text of its config.

    Args:
        store: the tracking store.
        config: the config, with the changes applied.
        path: file of the config.
        directory: directory with the user's code.
        changes: changes of the config, each as ``KEY=VALUE``. They become comments above the recorded text.
    """
    from det_core.runner import submit_experiment

    text = announce_config_file(config, path, directory, changes)
    return submit_experiment(store, config, directory, original_config=text)


def announce_config_file(config: ExperimentConfig, path: Path, directory: Path, changes: Sequence[str] = ()) -> str:
    """Print notices on an experiment that is about to be recorded, and return the text of its config.

    Args:
        config: the config, with the changes applied.
        path: file of the config.
        directory: directory with the user's code.
        changes: changes of the config, each as ``KEY=VALUE``. They become comments above the text.
    """
    from det_core.config import note_changes
    from det_core.runner import check_code

    hook = directory / _STARTUP_HOOK
    if hook.exists():
        print(f"det: note: {hook} is not run; run its commands, such as pip install, once yourself", file=sys.stderr)
    for notice in check_code(config, directory):
        print(f"det: note: {notice}", file=sys.stderr)
    return note_changes(path.read_text(encoding="utf-8"), changes, config.dump())


def train_in_foreground(store: TrackingStore, experiment_id: int, *, quiet: bool) -> int:
    """Run the experiment in this process and return the exit code.

    Ctrl-C or a closed terminal saves a checkpoint and stops. A second Ctrl-C kills.

    Args:
        store: the tracking store.
        experiment_id: the experiment.
        quiet: whether to show no progress.
    """
    from det_core.cli.commands._states import exit_code
    from det_core.cli.render.experiment_progress import create_watcher, show_progress
    from det_core.interfaces.records import State
    from det_core.runner import ExperimentRunner

    runner = ExperimentRunner(store, experiment_id)
    watching = not quiet and show_progress(create_watcher(store, experiment_id), lambda: _status(runner.signals))
    with watching or nullcontext(lambda: None) as update:

        def tick() -> None:
            if signal.SIGHUP in runner.signals:
                _leave_closed_terminal()
            update()

        state = runner.run(tick)
    if state in (State.PAUSED, State.CANCELED):
        return _SIGNALLED[signal.Signals(runner.signals[0])] if runner.signals else 1
    return exit_code(state)


def print_summary(store: TrackingStore, experiment_id: int, *, as_json: bool) -> None:
    """Print the outcome of an experiment."""
    from det_core.cli.render.experiment_summary import summarize_experiment, summary_lines
    from det_core.cli.render.printing import print_json
    from det_core.tracking import det_command

    result = summarize_experiment(store, experiment_id)
    if as_json:
        print_json(result)
    else:
        print(*summary_lines(result, det_command(store.url)), sep="\n")


def _status(signals: Sequence[int]) -> str:
    if not signals:
        return ""
    asked = [number for number in signals if number != signal.SIGHUP]
    return "killing" if len(asked) > 1 else "saving a checkpoint to stop; Ctrl-C kills"


def _leave_closed_terminal() -> None:
    """Redirect further output to ``/dev/null``, because each write to a closed terminal is an error."""
    for stream in (sys.stdout.fileno(), sys.stderr.fileno()):
        if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
            with open(os.devnull, "wb") as null:  # noqa: PTH123
                os.dup2(null.fileno(), stream)
