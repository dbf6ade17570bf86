"""Removal of checkpoints or some of their files, by ``det checkpoint rm`` and ``det checkpoint gc EXPERIMENT_ID``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from det_core import storage
from det_core.cli.commands._confirmation import confirm_removal
from det_core.cli.render.printing import print_json
from det_core.cli.render.records import checkpoint_table
from det_core.config import CheckpointStorageConfig, parse_config
from det_core.core.checkpoint_removal import remove_checkpoint
from det_core.core.checkpoint_retention import find_superfluous
from det_core.core.client_events import ClientEvents
from det_core.core.recorded_storage import experiment_config, find_other_storage
from det_core.errors import DetError
from det_core.home import default_storage
from det_core.ignore_patterns import pattern_matcher
from det_core.interfaces.records import CheckpointRecord, CheckpointState
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import check_deletable, delete_checkpoints, is_latest_checkpoint
from det_core.text import format_count, format_size
from det_core.tracking import open_store
from det_core.tracking._lease import Lease


def run_rm(args: argparse.Namespace) -> int:
    """Remove checkpoints, or their files that match ``--glob``. All are checked before the first is removed.

    Raises:
        DetError: a checkpoint is needed or incomplete, or none of its files matches.
    """
    with open_store() as store:
        checkpoints = [store.checkpoint(uuid) for uuid in dict.fromkeys(args.uuids)]
        for checkpoint in checkpoints:
            check_deletable(store, checkpoint)
            _refuse_mistyped(checkpoint, args.glob)
        question = _question(checkpoints, args.glob)
        if not (args.yes or confirm_removal(question, _notes(store, checkpoints), as_json=args.json)):
            return 1
        left = delete_checkpoints(store, checkpoints, args.glob)
    if args.json:
        print_json([{"uuid": uuid, "resources": resources} for uuid, resources in left.items()])
    else:
        for uuid, resources in left.items():
            rest = (
                f"{format_count(len(resources), 'file')}, {format_size(sum(resources.values()))}"
                if resources
                else "nothing"
            )
            print(f"Checkpoint {uuid}: {rest} left")
    return 0


def _refuse_mistyped(checkpoint: CheckpointRecord, globs: Sequence[str]) -> None:
    if not globs or checkpoint.state is CheckpointState.DELETED:
        return
    matches = pattern_matcher(globs)
    if not any(matches(name) for name in checkpoint.resources if name != storage.METADATA_FILE):
        raise DetError(
            f"no file of checkpoint {checkpoint.uuid} matches {' '.join(globs)}; "
            f"to list its files: det checkpoint describe {checkpoint.uuid}"
        )


def _question(checkpoints: Sequence[CheckpointRecord], globs: Sequence[str]) -> str:
    what = f"the files that match {' '.join(globs)}" if globs else "all files"
    return f"Permanently remove {what} of {format_count(len(checkpoints), 'checkpoint')}?"


def _notes(store: TrackingStore, checkpoints: Sequence[CheckpointRecord]) -> Iterator[str]:
    for one in checkpoints:
        trials = ", ".join(map(str, store.trials_using(one.uuid)))
        notes = [f"used by trial {trials}"] if trials else []
        notes += ["the checkpoint from which its trial continues"] if is_latest_checkpoint(store, one) else []
        notes += filter(None, [find_other_storage(experiment_config(store, one), one)])
        yield "; ".join([f"{one.uuid}: batch {one.steps_completed} of trial {one.trial_id}", *notes])


def apply_retention(args: argparse.Namespace) -> int:
    """Remove the checkpoints that the retention policy does not keep. No runner can start during the removal.

    Raises:
        ExperimentBusy: a runner is running the experiment.
    """
    removed: list[CheckpointRecord] = []
    problems: list[str] = []
    with open_store() as store:
        experiment = store.experiment(args.experiment_id)
        configured = parse_config(experiment.config).checkpoint_storage
        policy = configured or CheckpointStorageConfig.model_validate(default_storage())
        with ClientEvents(store) as client, Lease(store, experiment.id) as lease:
            for checkpoint in find_superfluous(store, experiment.id, policy):
                lease.check()
                try:
                    if not args.dry_run:
                        remove_checkpoint(store, checkpoint, lease=lease.holder, on_deleted=client.checkpoint_deleted)
                    removed.append(checkpoint)
                except DetError as error:
                    problems.append(f"checkpoint {checkpoint.uuid}: {error}")
    if args.json:
        print_json({"dry_run": args.dry_run, "checkpoints": removed, "problems": problems})
    else:
        if removed:
            print(checkpoint_table(removed))
        total = format_size(sum(sum(one.resources.values()) for one in removed))
        print(f"{'Would remove' if args.dry_run else 'Removed'} {format_count(len(removed), 'checkpoint')}, {total}.")
        for problem in problems:
            print(f"not removed: {problem}", file=sys.stderr)
    return 1 if problems else 0
