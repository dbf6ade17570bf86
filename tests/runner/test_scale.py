"""Searches with hundreds of trials at once, on a simulated cluster whose faults are drawn from a seed."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import cast

import pytest
from det_testing import campaign_seeds, is_soak

from det_core.interfaces.launcher import Cause, Exit
from det_core.interfaces.records import ExperimentRecord, State, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import _restart_policy

from . import simulated_cluster
from .simulated_search import (
    CountedStore,
    Peaks,
    assert_accounted_for,
    install_cluster,
    run_search,
    submit_search,
)

pytestmark = pytest.mark.integration

AT_ONCE = 256
RANDOM = {"name": "random", "max_concurrent_trials": AT_ONCE}
HALVING = {"name": "async_halving", "num_rungs": 3, "max_concurrent_trials": AT_ONCE}
INTERRUPTIONS = (Cause.PREEMPTED, Cause.TIME_LIMIT, Cause.NODE_LOST)
MOST_CALLS = 26
"""Limit on the calls of the store by the runner for each launch, without those that workers make. Log lines and states
of a launch are written as they come, so a launch of a slow machine has some more calls: 23 were seen there."""


@pytest.fixture(autouse=True)
def cluster(plugin_site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_cluster(plugin_site)
    monkeypatch.setattr(_restart_policy, "FIRST_DELAY", 0.01)


def ends_of(store: TrackingStore, trial: TrialRecord) -> list[Exit]:
    return simulated_cluster.journal.ends[f"{store.cluster_id}-exp-1-trial-{trial.id}"]


def is_failure(end: Exit) -> bool:
    return end.cause is Cause.OUT_OF_MEMORY or (end.cause is Cause.WORKERS and end.code > 0)


def assert_counts(store: TrackingStore, experiment: ExperimentRecord, *, stopped: bool) -> None:
    """Compare the counters of all trials with what the cluster did to them."""
    for trial in store.trials(experiment.id):
        ends = ends_of(store, trial)
        expected = sum(map(is_failure, ends)), sum(end.cause in INTERRUPTIONS for end in ends)
        counted = trial.restarts, trial.interruptions
        # A run that ends after a request to stop counts as neither.
        assert all(map(int.__le__, counted, expected)) if stopped else counted == expected, (trial.id, ends)


def test_simulated_faults_change_no_result(store: TrackingStore, tmp_path: Path) -> None:
    """A small search has every kind of fault."""
    searcher = {"name": "random", "max_trials": 24, "max_concurrent_trials": 12}
    cluster = {
        "seed": 1,
        "nodes": 2,
        "slots_per_node": 5,
        "fault_rate": 0.7,
        "faulty_launches": 3,
        "batch_seconds": 0.03,
    }
    experiment, counted = submit_search(store, tmp_path, searcher, cluster), CountedStore(store)
    resumed = run_search(cast("TrackingStore", counted), experiment.id, limit=60)
    assert counted.calls["model_definition"] == 1 + resumed  # hundreds of copies would fill the memory
    assert_accounted_for(store, experiment, 24, tmp_path)
    assert_counts(store, experiment, stopped=False)
    journal = simulated_cluster.journal
    ends = [end for of_trial in journal.ends.values() for end in of_trial]
    assert {end.cause for end in ends} == set(Cause)
    assert journal.most_running == 10
    assert sum(journal.launches.values()) > len(ends) > 24  # the others were delayed


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", campaign_seeds(few=1, many=20))
def test_256_trials_at_once_survive_a_bad_cluster(seed: int, store: TrackingStore, tmp_path: Path) -> None:
    chance = random.Random(seed)
    searcher = {**chance.choice([RANDOM, HALVING]), "max_trials": 320}
    cluster = {"seed": seed, "nodes": chance.choice([16, 24, 32]), "fault_rate": chance.uniform(0.1, 0.5)}
    pauses = [time.monotonic() + chance.uniform(1, 15) for _ in range(chance.randrange(3))]
    experiment = submit_search(
        store, tmp_path, searcher, cluster, reproducibility={"experiment_seed": chance.randrange(1000)}
    )
    peaks = Peaks()

    def tick() -> None:
        peaks.measure()
        if pauses and time.monotonic() > min(pauses):
            pauses.remove(min(pauses))
            store.request_experiment_state(experiment.id, State.PAUSED)

    resumed = run_search(store, experiment.id, tick)
    print(f"{simulated_cluster.journal.most_running} at once, resumed {resumed} times")
    assert_accounted_for(store, experiment, 320, tmp_path)
    assert_counts(store, experiment, stopped=resumed > 0)
    assert_bounded(peaks)


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(3000)
def test_a_search_of_thousands_of_trials_is_bounded(store: TrackingStore, tmp_path: Path) -> None:
    trials = 10_000 if is_soak() else 300
    experiment = submit_search(
        store, tmp_path, {**HALVING, "max_trials": trials}, {"fault_rate": 0.02, "batch_seconds": 0.02}
    )
    counted, peaks = CountedStore(store), Peaks()
    run_search(cast("TrackingStore", counted), experiment.id, peaks.measure, limit=2700)
    assert_accounted_for(store, experiment, trials, tmp_path)
    assert_bounded(peaks)
    launches = sum(simulated_cluster.journal.launches.values())
    calls = counted.calls - simulated_cluster.journal.calls
    assert sum(calls.values()) <= MOST_CALLS * launches, {name: count / launches for name, count in calls.items()}


def assert_bounded(peaks: Peaks) -> None:
    """Check that memory, threads and open files depend on the number of trials at once only."""
    # The threads of a paused runner's cluster may end while the next runner begins.
    assert peaks.threads - peaks.threads_before <= 3 * AT_ONCE + 2 * simulated_cluster.THREADS + 24
    assert peaks.files <= peaks.files_before + 64
    assert max(peaks.memory) - peaks.memory_before < AT_ONCE * (1 << 19)
