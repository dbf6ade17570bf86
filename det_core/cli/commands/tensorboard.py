"""Command ``det tensorboard``, which starts TensorBoard on the files that trials have written for it."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from det_core.cli._command_table import INTERRUPTED, UsageError, make_argument, parse_count, set_up_command
from det_core.errors import DetError, StorageError
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore
from det_core.package_commands import package_command
from det_core.scratch import scratch_directory
from det_core.storage import is_inside
from det_core.text import format_count
from det_core.tracking import open_store
from det_core.tracking.control import settled_experiment

_POLL_SECONDS = 15.0
"""Seconds between two polls of a storage for files that have grown."""
_EVENTS = "tfevents"
"""Part of the names of event files, which only grow."""
_EXIT_SECONDS = 10.0
"""Seconds after which TensorBoard is killed if it has not exited."""

_ARGUMENTS = (
    make_argument(
        "experiment_ids",
        nargs="*",
        type=int,
        metavar="EXPERIMENT_ID",
        help="show these experiments with all their trials",
    ),
    make_argument(
        "-t",
        "--trial",
        action="append",
        default=[],
        type=int,
        dest="trial_ids",
        metavar="TRIAL_ID",
        help="also show this trial; may be repeated",
    ),
    make_argument(
        "--host", default="127.0.0.1", help="address to listen on; default: reachable from this machine only"
    ),
    make_argument(
        "--port", type=parse_count, default=6006, help="port to listen on; 0: any free port; default: %(default)s"
    ),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments to the parser."""
    set_up_command(parser, _run, _ARGUMENTS, "3 4")


def _run(args: argparse.Namespace) -> int:
    if not (args.experiment_ids or args.trial_ids):
        raise UsageError(
            "missing EXPERIMENT_ID; expected det tensorboard EXPERIMENT_ID or det tensorboard --trial TRIAL_ID"
        )
    if importlib.util.find_spec("tensorboard") is None:
        raise DetError(f"TensorBoard is not installed; to install it: {package_command('install', 'tensorboard')}")
    with scratch_directory("tensorboard") as directory:
        with open_store() as store:
            folders = list(_folders(store, args, directory))
        found = sum(folder.bring() for folder in folders)
        if not found:
            raise DetError(
                "no TensorBoard files are stored for these trials; they appear some seconds after the first report"
            )
        print(f"Starting TensorBoard for {format_count(found, 'trial')}; Ctrl-C stops it", flush=True)
        return _serve(directory, folders, args.host, args.port)


@dataclass
class TensorboardFolder:
    """TensorBoard files of an experiment or one of its trials, and the directory from which they are shown."""

    storage: StorageManager
    storage_id: str
    prefix: str
    """Prefix of stored paths, which ends with ``/``. It is followed by the trial's id."""
    trial_id: int | None
    """Trial to show, or None for all."""
    target: Path
    grows: bool
    """Whether the trials may still write files."""
    _sizes: dict[str, int] = field(default_factory=dict)

    def bring(self) -> int:
        """Link or copy the files to the target, and return the number of trials.

        Local files that will not change are linked. Others are copied if they have changed since the last call.
        """
        local = self.storage.local_path(self.storage_id)
        names = self._linked(local / self.prefix) if local and not self.grows else self._copied()
        return len(set(names))

    def _linked(self, trials: Path) -> Iterator[str]:
        for directory in sorted(trials.iterdir()) if trials.is_dir() else ():
            if self.trial_id in (None, _number(directory.name)):
                link = self.target / f"trial_{directory.name}"
                if not link.is_symlink():
                    link.symlink_to(directory, target_is_directory=True)
                yield directory.name

    def _copied(self) -> Iterator[str]:
        for path, size in self.storage.list(self.storage_id).items():
            trial, _, name = path.removeprefix(self.prefix).partition("/")
            if not path.startswith(self.prefix) or not is_inside(name):
                continue
            if self.trial_id in (None, _number(trial)):
                if self._sizes.get(path) != size:
                    with suppress(FileNotFoundError):  # removed after the listing
                        self._copy(path, self.target / f"trial_{trial}" / name)
                        self._sizes[path] = size
                yield trial

    def _copy(self, path: str, target: Path) -> None:
        """Copy a file, and append to an event file that exists.

        TensorBoard keeps event files open, so it would not see a replaced file.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = self.target / "partial"
        self.storage.get(self.storage_id, path, partial)
        if _EVENTS in target.name and target.exists():
            with partial.open("rb") as new, target.open("ab") as old:
                new.seek(old.tell())
                shutil.copyfileobj(new, old)
        else:
            partial.replace(target)


def _folders(store: TrackingStore, args: argparse.Namespace, directory: Path) -> Iterator[TensorboardFolder]:
    from det_core.core import open_storage_block
    from det_core.home import default_storage

    trials = [store.trial(trial_id) for trial_id in args.trial_ids]
    wanted = [(experiment_id, None) for experiment_id in args.experiment_ids]
    for experiment_id, trial_id in [*wanted, *((trial.experiment_id, trial.id) for trial in trials)]:
        experiment = store.experiment(experiment_id)
        target = directory / f"experiment_{experiment.id}"
        target.mkdir(exist_ok=True)
        yield TensorboardFolder(
            storage=open_storage_block(experiment.config.get("checkpoint_storage") or default_storage()),
            storage_id=store.cluster_id,
            prefix=f"tensorboard/experiment/{experiment.id}/trial/",
            trial_id=trial_id,
            target=target,
            grows=settled_experiment(store, experiment.id) is None,
        )


def _serve(directory: Path, folders: Sequence[TensorboardFolder], host: str, port: int) -> int:
    command = [sys.executable, "-m", "tensorboard.main", f"--logdir={directory}", f"--host={host}", f"--port={port}"]
    with subprocess.Popen(command) as process:
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_POLL_SECONDS)
                _refresh_folders(folders)
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            process.terminate()
            try:
                process.wait(_EXIT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _refresh_folders(folders: Sequence[TensorboardFolder]) -> None:
    for folder in folders:
        try:
            folder.bring()
        except StorageError as error:
            print(f"det: note: the files of TensorBoard are not up to date: {error}", file=sys.stderr)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
