"""Which checkpoints of an experiment are kept when it ends."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from det_core.config import CheckpointStorageConfig
from det_core.core.removal import remove
from det_core.errors import DetError
from det_core.interfaces.tracking import ScoredCheckpoint, State, TrackingStore

_log = logging.getLogger("det.runner")


def clean_up(
    store: TrackingStore, experiment_id: int, policy: CheckpointStorageConfig, tick: Callable[[], None]
) -> None:
    """Remove the checkpoints that neither the policy nor anybody else keeps.

    One that cannot be removed is told and stays: what was trained is not lost because of it.

    Args:
        tick: called before each of them.
    """
    scored = store.scored_checkpoints(experiment_id)
    keep = {*kept(scored, policy), *store.registered_checkpoints(experiment_id), *_held(store, experiment_id)}
    for checkpoint in (one.checkpoint for one in scored if one.checkpoint.uuid not in keep):
        tick()
        try:
            remove(store, checkpoint)
        except DetError as error:
            _log.warning(
                "checkpoint %s is not needed any more and could not be removed: %s; to try again: det checkpoint rm %s",
                checkpoint.uuid,
                error,
                checkpoint.uuid,
            )


def kept(scored: Sequence[ScoredCheckpoint], policy: CheckpointStorageConfig) -> Iterator[str]:
    """The uuids that the policy keeps.

    Args:
        scored: the best first; those that were not validated count for ``save_trial_latest`` only.
    """
    best_first = [one.checkpoint for one in scored if one.value is not None]
    latest_first = sorted((one.checkpoint for one in scored), key=lambda one: one.time, reverse=True)
    yield from (one.uuid for one in best_first[: policy.save_experiment_best])
    for order, count in [(best_first, policy.save_trial_best), (latest_first, policy.save_trial_latest)]:
        left = Counter(dict.fromkeys({one.trial_id for one in order}, count))
        for one in order:
            left[one.trial_id] -= 1
            if left[one.trial_id] >= 0:
                yield one.uuid


def _held(store: TrackingStore, experiment_id: int) -> Iterator[str]:
    """What somebody may go on from: trials that have not completed, and those of other experiments."""
    unfinished = [state for state in State if state is not State.COMPLETED]
    for trial in store.trials(experiment_id, states=unfinished):
        yield from _latest(store, trial.id)
        yield from filter(None, [trial.source_checkpoint])
    for other in store.experiments(states=unfinished):
        searcher = other.config.get("searcher") or {}
        yield from filter(None, [searcher.get("source_checkpoint_uuid")])
        if searcher.get("source_trial_id") is not None:
            yield from _latest(store, searcher["source_trial_id"])


def _latest(store: TrackingStore, trial_id: int) -> Iterator[str]:
    return (checkpoint.uuid for checkpoint in store.checkpoints(trial_id=trial_id)[-1:])
