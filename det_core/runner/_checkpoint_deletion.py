"""Deletion of checkpoints that a person chose, without harm to runs that need them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from det_core.core.checkpoint_removal import remove_checkpoint
from det_core.core.checkpoint_retention import find_warm_start_sources
from det_core.core.client_events import ClientEvents
from det_core.errors import DetError
from det_core.interfaces.records import CheckpointRecord, CheckpointState
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking._lease import Lease


def check_deletable(store: TrackingStore, checkpoint: CheckpointRecord, *, lease: str = "") -> None:
    """Check that nothing needs a checkpoint.

    Args:
        store: the tracking store.
        checkpoint: the checkpoint.
        lease: holder of the lease of its experiment, if that deletes it. What this experiment itself needs does not
            matter then.

    Raises:
        DetError: it is being written, is a version of a model, is the one from which a running trial continues, or is
            one from which an experiment starts that has not completed.
    """
    trial = store.trial(checkpoint.trial_id)
    runner = store.lease_holder(trial.experiment_id)
    is_held = runner is not None and runner == lease
    if checkpoint.state is CheckpointState.ACTIVE and not is_held:
        raise DetError(
            f"checkpoint {checkpoint.uuid} is being written; "
            "if its run is dead, remove it with: det checkpoint gc --orphans"
        )
    if checkpoint.uuid in store.registered_checkpoints(trial.experiment_id):
        raise DetError(
            f"checkpoint {checkpoint.uuid} is a version of a model (det model list, det model describe NAME); "
            "delete the version first: det model delete-version NAME VERSION"
        )
    needed = [
        identity
        for identity, uuids in find_warm_start_sources(store).items()
        if checkpoint.uuid in uuids and not (is_held and identity == trial.experiment_id)
    ]
    if needed:
        raise DetError(
            f"checkpoint {checkpoint.uuid} is needed by experiment {', '.join(map(str, needed))}, which starts from it "
            f"and has not completed; let it complete, or delete it first: det experiment delete {needed[0]}"
        )
    if runner and not is_held and is_latest_checkpoint(store, checkpoint):
        raise DetError(
            f"checkpoint {checkpoint.uuid} is the latest of trial {trial.id}, which is running and may have to "
            f"continue from it; pause the experiment first: det experiment pause {trial.experiment_id}"
        )


def delete_checkpoints(
    store: TrackingStore,
    checkpoints: Sequence[CheckpointRecord],
    globs: Sequence[str] = (),
    *,
    by_server: bool = False,
) -> dict[str, dict[str, int]]:
    """Delete the files of checkpoints, or only those that match. Call `check_deletable` for all of them first.

    No runner starts a trial from a checkpoint in the meantime.

    Args:
        store: the tracking store.
        checkpoints: the checkpoints.
        globs: patterns of the files to delete; empty for all files.
        by_server: whether this process deletes for people on other machines, whose directories it does not have and
            who may not choose the storage that it opens.

    Returns:
        Sizes in bytes of the remaining files by path, by uuid of the checkpoint.

    Raises:
        DetError: a checkpoint is needed, or its storage failed.
    """
    experiment_of = {trial: store.trial(trial).experiment_id for trial in {one.trial_id for one in checkpoints}}
    experiments = {experiment_of[one.trial_id] for one in checkpoints if is_latest_checkpoint(store, one)}
    left = {}
    with ClientEvents(store) as client, ExitStack() as held:
        leases = {one: held.enter_context(Lease(store, one)) for one in experiments}
        for checkpoint in checkpoints:
            for lease in leases.values():
                lease.check()
            own = leases.get(experiment_of[checkpoint.trial_id])
            left[checkpoint.uuid] = remove_checkpoint(
                store,
                checkpoint,
                globs,
                lease=own.holder if own else "",
                chosen=not by_server,
                is_shared=by_server,
                on_deleted=client.checkpoint_deleted,
            )
    return left


def is_latest_checkpoint(store: TrackingStore, checkpoint: CheckpointRecord) -> bool:
    """Return whether a checkpoint is the one from which its trial would continue."""
    return [one.uuid for one in store.checkpoints(trial_id=checkpoint.trial_id)][-1:] == [checkpoint.uuid]
