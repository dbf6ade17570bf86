"""Links from trials to the checkpoints of other trials that they use."""

from __future__ import annotations

import pytest

from det_core.errors import RecordNotFound, StaleRun
from det_core.interfaces.tracking import TrackingStore


def started(store: TrackingStore) -> int:
    trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0)
    store.start_run(trial.id, allocation_id="a")
    return trial.id


def test_the_trials_of_a_checkpoint_are_found(store: TrackingStore) -> None:
    one, two = started(store), started(store)
    for trial_id in (two, one, two):
        store.add_trial_source(trial_id, 1, "some-checkpoint", model_id=3, model_version=1)
    store.add_trial_source(one, 1, "another")
    assert store.trials_using("some-checkpoint") == [one, two]
    assert store.trials_using("another") == [one]
    assert store.trials_using("unknown") == []


def test_only_the_newest_run_may_add_a_source(store: TrackingStore) -> None:
    trial_id = started(store)
    store.start_run(trial_id, allocation_id="b")
    with pytest.raises(StaleRun):
        store.add_trial_source(trial_id, 1, "some-checkpoint")
    with pytest.raises(RecordNotFound):
        store.add_trial_source(99, 1, "some-checkpoint")
