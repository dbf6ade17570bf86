"""``det checkpoint rm``: the files of checkpoints, and what the record says of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress

from det_core import events, storage
from det_core.cli._command import UsageError
from det_core.cli._output import count, print_json, size
from det_core.cli._storage import open_checkpoint_storage
from det_core.errors import DetError
from det_core.interfaces.tracking import Checkpoint, CheckpointState, TrackingStore
from det_core.plugins import emit
from det_core.tracking import open_store


def rm(args: argparse.Namespace) -> int:
    """Remove checkpoints, or the files of them that match ``--glob``; all are checked before the first goes."""
    with open_store() as store:
        checkpoints = [store.checkpoint(uuid) for uuid in dict.fromkeys(args.uuids)]
        for checkpoint in checkpoints:
            _refuse_needed(store, checkpoint)
            _refuse_mistyped(checkpoint, args.glob)
        if not (args.yes or _agreed(store, checkpoints, args.glob, as_json=args.json)):
            return 1
        left = {checkpoint.uuid: _remove(store, checkpoint, args.glob) for checkpoint in checkpoints}
    if args.json:
        print_json([{"uuid": uuid, "resources": resources} for uuid, resources in left.items()])
    else:
        for uuid, resources in left.items():
            rest = f"{count(len(resources), 'file')}, {size(sum(resources.values()))}" if resources else "nothing"
            print(f"Checkpoint {uuid}: {rest} left")
    return 0


def _remove(store: TrackingStore, checkpoint: Checkpoint, globs: Sequence[str]) -> dict[str, int]:
    """The row first: what it calls COMPLETED has all its files at any time."""
    partly = globs and checkpoint.state is not CheckpointState.DELETED
    manager = open_checkpoint_storage(checkpoint)
    store.delete_checkpoint(checkpoint.uuid, remaining=checkpoint.resources if partly else None)
    left = storage.delete(manager, checkpoint.uuid, globs if partly else storage.ALL)
    store.delete_checkpoint(checkpoint.uuid, remaining=left)
    if not left:
        emit(events.CheckpointDeleted(storage_id=checkpoint.uuid))
    return left


def _refuse_needed(store: TrackingStore, checkpoint: Checkpoint) -> None:
    trial = store.trial(checkpoint.trial_id)
    if checkpoint.state is CheckpointState.ACTIVE:
        raise DetError(
            f"checkpoint {checkpoint.uuid} is being written; if its run is dead: det checkpoint gc --orphans removes it"
        )
    if _is_latest(store, checkpoint) and store.lease_holder(trial.experiment_id):
        raise DetError(
            f"checkpoint {checkpoint.uuid} is the latest of trial {trial.id}, which is running and may have to go on "
            f"from it; first: det experiment pause {trial.experiment_id}"
        )


def _refuse_mistyped(checkpoint: Checkpoint, globs: Sequence[str]) -> None:
    if not globs or checkpoint.state is CheckpointState.DELETED:
        return
    matches = storage.selector(globs)
    if not any(matches(name) for name in checkpoint.resources if name != storage.METADATA_FILE):
        raise DetError(
            f"no file of checkpoint {checkpoint.uuid} matches {' '.join(globs)}; "
            f"to see them: det checkpoint describe {checkpoint.uuid}"
        )


def _is_latest(store: TrackingStore, checkpoint: Checkpoint) -> bool:
    return [one.uuid for one in store.checkpoints(trial_id=checkpoint.trial_id)][-1:] == [checkpoint.uuid]


def _agreed(store: TrackingStore, checkpoints: Sequence[Checkpoint], globs: Sequence[str], *, as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        raise UsageError("nobody can be asked here whether to remove for good; if so, pass --yes")
    for one in checkpoints:
        trials = ", ".join(map(str, store.trials_using(one.uuid)))
        notes = [f"used by trial {trials}"] if trials else []
        notes += ["the one that its trial goes on from"] if _is_latest(store, one) else []
        print("; ".join([f"{one.uuid}: batch {one.steps_completed} of trial {one.trial_id}", *notes]))
    what = f"the files that match {' '.join(globs)}" if globs else "all files"
    answer = ""
    with suppress(EOFError):  # Ctrl-D
        answer = input(f"Remove {what} of {count(len(checkpoints), 'checkpoint')} for good? [y/N] ")
    return answer.lower() in ("y", "yes")
