"""Command ``det experiment delete``, which removes an experiment from the storage and the tracking store."""

from __future__ import annotations

import argparse

from det_core.cli.commands._confirmation import confirm_removal
from det_core.cli.render.printing import print_json
from det_core.core.checkpoint_removal import remove_checkpoint, remove_tensorboard_files
from det_core.core.checkpoint_retention import find_warm_start_sources
from det_core.core.client_events import ClientEvents
from det_core.core.recorded_storage import find_other_storage
from det_core.errors import DetError
from det_core.interfaces.records import CheckpointRecord, CheckpointState, ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.text import format_count, format_size
from det_core.tracking import open_store
from det_core.tracking._lease import Lease
from det_core.tracking.control import settled_experiment


def run_delete(args: argparse.Namespace) -> int:
    """Remove the checkpoint files and TensorBoard files of experiments, then their records.

    All are checked before the first is removed. If the command is interrupted, running it again continues the removal.

    Raises:
        DetError: an experiment may be running, the model registry holds one of its checkpoints, or another experiment
            that has not completed starts from one.
    """
    removed = []
    with open_store() as store:
        experiments = [store.experiment(identity) for identity in dict.fromkeys(args.experiment_ids)]
        for experiment in experiments:
            _refuse_needed(store, experiment)
        if not (args.yes or all(confirm_removal(_question(store, one), as_json=args.json) for one in experiments)):
            return 1
        for experiment in experiments:
            checkpoints = _delete(store, experiment)
            removed.append({"id": experiment.id, "checkpoints": [checkpoint.uuid for checkpoint in checkpoints]})
            if not args.json:
                print(f"Deleted experiment {experiment.id} with {format_count(len(checkpoints), 'checkpoint')}")
    if args.json:
        print_json(removed if len(removed) > 1 else removed[0])
    return 0


def _delete(store: TrackingStore, experiment: ExperimentRecord) -> list[CheckpointRecord]:
    """Remove an experiment, and return its checkpoints."""
    with ClientEvents(store) as client, Lease(store, experiment.id) as lease:  # from here on no runner can start
        _refuse_registered(store, experiment)
        checkpoints = _checkpoints(store, experiment)
        for checkpoint in checkpoints:
            lease.check()
            remove_checkpoint(store, checkpoint, lease=lease.holder, on_deleted=client.checkpoint_deleted)
        remove_tensorboard_files(store, experiment)
        store.delete_experiment(experiment.id, lease=lease.holder)
    return checkpoints


def _refuse_needed(store: TrackingStore, experiment: ExperimentRecord) -> None:
    # The store does not know whether a script is alive, only whether it was asked to stop.
    given_up = experiment.unmanaged and experiment.state is State.STOPPING_KILLED
    if settled_experiment(store, experiment.id) is None and not given_up:
        raise DetError(
            f"experiment {experiment.id} is {experiment.state.value} and may be running; "
            f"kill it first: det experiment kill {experiment.id}"
        )
    _refuse_registered(store, experiment)
    own = {checkpoint.uuid for checkpoint in _checkpoints(store, experiment)}
    needed = [
        identity
        for identity, uuids in find_warm_start_sources(store).items()
        if own & {*uuids} and identity != experiment.id
    ]
    if needed:
        others = ", ".join(map(str, needed))
        raise DetError(
            f"experiment {others} starts from a checkpoint of experiment {experiment.id} and has not completed; "
            f"let it complete, or delete it first: det experiment delete {needed[0]}"
        )


def _refuse_registered(store: TrackingStore, experiment: ExperimentRecord) -> None:
    registered = sorted(store.registered_checkpoints(experiment.id))
    if registered:
        raise DetError(
            f"experiment {experiment.id} has checkpoints that are versions of models: {', '.join(registered)}; "
            "find the models with det model list, then delete the versions first: det model delete-version NAME VERSION"
        )


def _checkpoints(store: TrackingStore, experiment: ExperimentRecord) -> list[CheckpointRecord]:
    """Return all checkpoints, including deleted ones, because an interrupted removal may have left files.

    Those that a person deleted in a storage that the config does not name are left out.
    """
    return [
        one
        for one in store.checkpoints(experiment_id=experiment.id, states=list(CheckpointState))
        if one.state is not CheckpointState.DELETED or not find_other_storage(experiment.config, one)
    ]


def _question(store: TrackingStore, experiment: ExperimentRecord) -> str:
    checkpoints = _checkpoints(store, experiment)
    stored = sum(sum(checkpoint.resources.values()) for checkpoint in checkpoints)
    trials = format_count(len(store.trials(experiment.id)), "trial")
    return (
        f"Permanently delete experiment {experiment.id} ({experiment.name}, {experiment.state.value}) with {trials} "
        f"and {format_count(len(checkpoints), 'checkpoint')} ({format_size(stored)})?"
    )
