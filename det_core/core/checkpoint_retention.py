"""Retention of checkpoints once an experiment or a script has completed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from det_core.core.checkpoint_removal import remove_checkpoint
from det_core.errors import DetError, RecordNotFound, TrackingError
from det_core.interfaces.records import CheckpointRecord, ScoredCheckpoint, State
from det_core.interfaces.tracking import TrackingStore

if TYPE_CHECKING:
    from det_core.config import CheckpointStorageConfig

_log = logging.getLogger("det.core")

_UNFINISHED = [state for state in State if state is not State.COMPLETED]


def remove_superfluous(
    store: TrackingStore,
    experiment_id: int,
    policy: CheckpointStorageConfig,
    proceed: Callable[[], bool],
    *,
    lease: str,
    on_deleted: Callable[[CheckpointRecord], None],
) -> None:
    """Remove the `find_superfluous` checkpoints of an experiment.

    An error is logged and ends the clean-up, because it must not cost the results of training. One of a single
    checkpoint only leaves this checkpoint in place.

    Args:
        store: the tracking store.
        experiment_id: the experiment, which has completed.
        policy: the numbers of checkpoints to keep.
        proceed: function called before each removal. The clean-up stops when it returns False.
        lease: holder of the lease of the experiment, which is the caller.
        on_deleted: function called after each removal.
    """
    try:
        for checkpoint in find_superfluous(store, experiment_id, policy):
            if not proceed():
                _warn_of_rest(experiment_id, "a stop was requested")
                return
            _try_to_remove(store, checkpoint, lease, on_deleted)
    except TrackingError as error:
        _warn_of_rest(experiment_id, error)


def _warn_of_rest(experiment_id: int, reason: object) -> None:
    _log.warning(
        "stopped before all checkpoints that are no longer needed were removed: %s; to remove the others: "
        "det checkpoint gc %d",
        reason,
        experiment_id,
    )


def _try_to_remove(
    store: TrackingStore, checkpoint: CheckpointRecord, lease: str, on_deleted: Callable[[CheckpointRecord], None]
) -> None:
    try:
        remove_checkpoint(store, checkpoint, lease=lease, on_deleted=on_deleted)
    except DetError as error:
        _log.warning(
            "checkpoint %s is no longer needed, but could not be removed: %s; to try again: det checkpoint rm %s",
            checkpoint.uuid,
            error,
            checkpoint.uuid,
        )


def find_superfluous(
    store: TrackingStore, experiment_id: int, policy: CheckpointStorageConfig
) -> Iterator[CheckpointRecord]:
    """Yield the complete checkpoints that neither the policy, an unfinished trial nor `find_needed` keeps.

    The oldest comes first. Experiments that are submitted while the caller removes it may start from the others.
    """
    complete = store.checkpoints(experiment_id=experiment_id)
    keep = set(select_kept(store.scored_checkpoints(experiment_id), complete, policy))
    for trial in store.trials(experiment_id, states=_UNFINISHED):
        keep.update(_latest(store, trial.id))
    newest, needed = 0, set[str]()
    for one in complete:
        if one.uuid in keep:
            continue
        if (latest := store.experiments(limit=1, brief=True)[0].id) != newest:
            newest, needed = latest, find_needed(store, experiment_id)
        if one.uuid not in needed:
            yield one


def find_needed(store: TrackingStore, experiment_id: int) -> set[str]:
    """Return the uuids of the checkpoints that are versions of models, or that unfinished trials may start from.

    Args:
        store: the tracking store.
        experiment_id: experiment of the checkpoints. Those of others may be among them.
    """
    starts = (trial.source_checkpoint for trial in store.trials(experiment_id, states=_UNFINISHED))
    others = find_warm_start_sources(store).values()
    return {*store.registered_checkpoints(experiment_id), *filter(None, starts), *chain.from_iterable(others)}


def select_kept(
    scored: Iterable[ScoredCheckpoint], complete: Sequence[CheckpointRecord], policy: CheckpointStorageConfig
) -> Iterator[str]:
    """Yield the uuids of the checkpoints that the policy keeps.

    Args:
        scored: the complete checkpoints, best first. Those without a validation count for ``save_trial_latest`` only.
        complete: the same checkpoints, oldest first.
        policy: the numbers of checkpoints to keep.
    """
    best_first = [one.checkpoint for one in scored if one.value is not None]
    yield from (one.uuid for one in best_first[: policy.save_experiment_best])
    for order, count in [(best_first, policy.save_trial_best), (complete[::-1], policy.save_trial_latest)]:
        left = Counter(dict.fromkeys({one.trial_id for one in order}, count))
        for one in order:
            left[one.trial_id] -= 1
            if left[one.trial_id] >= 0:
                yield one.uuid


def find_warm_start_sources(store: TrackingStore) -> dict[int, list[str]]:
    """Return the uuids of the checkpoints that unfinished experiments start from, by experiment id.

    What a recorded config has in place of ids names none, or one user's config would keep others from deleting theirs.
    """
    return {one.id: list(_sources(store, one.config)) for one in store.experiments(states=_UNFINISHED, brief=True)}


def _sources(store: TrackingStore, config: Mapping[str, Any]) -> Iterator[str]:
    match config:
        case {"searcher": {"source_checkpoint_uuid": str(uuid)}}:
            yield uuid
        case {"searcher": {"source_trial_id": int(trial_id)}}:
            yield from _latest(store, trial_id)


def _latest(store: TrackingStore, trial_id: int) -> Sequence[str]:
    """Return the uuid of a trial's latest checkpoint, if the trial exists and has one."""
    try:
        return [checkpoint.uuid for checkpoint in store.checkpoints(trial_id=trial_id)[-1:]]
    except (RecordNotFound, OverflowError):  # the experiment of the trial was deleted, or no id is as large
        return []
