"""Searches of the real runner on the simulated cluster, and what they cost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from det_testing.plugin_metadata import write_plugin_metadata

from det_core.config import parse_config
from det_core.interfaces.records import ExperimentRecord, State, TrialRecord
from det_core.interfaces.search_method import action_to_json
from det_core.interfaces.tracking import TrackingStore
from det_core.plugins import plugin_registry
from det_core.runner import ExperimentRunner, submit_experiment
from det_core.search.method_selection import open_search_method

from . import simulated_cluster
from .simulated_cluster import METRIC, Journal, training_loss

LENGTH = 16
"""Number of batches of a trial that reaches the end of the search."""
PERIOD = 4
"""Number of batches between two reports."""
RUNGS = (1, 4, LENGTH)
"""Numbers of batches after which a search with successive halving asks for a validation."""


class CountedStore:
    """Tracking store that counts its calls.

    Args:
        store: the store that executes the calls.
    """

    def __init__(self, store: TrackingStore) -> None:
        self.calls: Counter[str] = Counter()
        self._store = store
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._store, name)
        if not callable(member):
            return member

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self.calls[name] += 1
            return member(*args, **kwargs)

        return call


class Peaks:
    """Highest use of resources by this process since construction."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self.memory_before = self._process.memory_info().rss
        self.files_before = self._process.num_fds()
        self.threads_before = threading.active_count()
        self.memory: list[int] = []
        """Resident memory in bytes at each measurement."""
        self.threads = 0
        self.files = 0

    def measure(self) -> None:
        """Take a measurement."""
        self.memory.append(self._process.memory_info().rss)
        self.threads = max(self.threads, threading.active_count())
        self.files = max(self.files, self._process.num_fds())


def install_cluster(site: Path) -> None:
    """Register the simulated cluster as a launcher, and forget what happened on earlier ones.

    Args:
        site: directory of ``sys.path``.
    """
    write_plugin_metadata(site, "det-simulated", simulated_cluster.__name__)
    plugin_registry.cache_clear()
    simulated_cluster.journal = Journal()


def submit_search(
    store: TrackingStore, directory: Path, searcher: dict[str, Any], cluster: dict[str, Any], **keys: Any
) -> ExperimentRecord:
    """Record a search on the simulated cluster.

    Args:
        store: the tracking store.
        directory: directory for the code and the checkpoints.
        searcher: options of the search.
        cluster: options of the cluster.
        keys: other keys of the config.
    """
    code = directory / "simulated code"
    code.mkdir(exist_ok=True)
    config = {
        "name": "simulated",
        "entrypoint": "true",
        "searcher": {"metric": METRIC, "max_length": {"batches": LENGTH}, **searcher},
        "hyperparameters": {"rate": {"type": "double", "minval": 0.0, "maxval": 1.0}},
        "scheduling_unit": PERIOD,
        "max_restarts": 100,
        "launcher": {"type": "simulated", **cluster},
        "checkpoint_storage": {"type": "directory", "container_path": str(directory / "checkpoints")},
        **keys,
    }
    return submit_experiment(store, parse_config(config), code)


def run_search(
    store: TrackingStore, experiment_id: int, tick: Callable[[], None] = lambda: None, limit: float = 600
) -> int:
    """Run a search to its end. Resume it whenever it is paused.

    Args:
        store: the tracking store.
        experiment_id: the experiment of the search.
        tick: function called about five times per second.
        limit: maximum number of seconds.

    Returns:
        The number of times that it was resumed.

    Raises:
        KeyboardInterrupt: a signal has paused it.
    """
    deadline = time.monotonic() + limit

    def turn() -> None:
        assert time.monotonic() < deadline, f"not completed within {limit:.0f} s"
        tick()

    resumed = 0
    runner = ExperimentRunner(store, experiment_id)
    while (state := runner.run(turn)) is State.PAUSED:
        if runner.signals:
            raise KeyboardInterrupt
        resumed += 1
        runner = ExperimentRunner(store, experiment_id)
    assert state is State.COMPLETED, store.experiment(experiment_id).error
    return resumed


def assert_accounted_for(store: TrackingStore, experiment: ExperimentRecord, trials: int, directory: Path) -> None:
    """Check that each trial has trained each of its batches, and that no two runs of a trial overlapped."""
    journal = simulated_cluster.journal
    assert (journal.errors, journal.twice, journal.running) == ([], [], set()), journal
    records = store.trials(experiment.id)
    assert Counter(trial.state for trial in records) == {State.COMPLETED: trials}
    assert {trial.request_id for trial in records} == set(range(trials))
    assert not [trial.id for trial in records if trial.placement or trial.ordered is not None]
    assert_trained(store, records, [LENGTH] if experiment.config["searcher"]["name"] == "random" else RUNGS)
    best = min((training_loss(trial.seed, LENGTH), trial.id, LENGTH) for trial in records)
    assert store.best_validation(experiment.id, METRIC, smaller_is_better=True) == pytest.approx(best)
    assert_search_recorded(store, experiment, directory)


def assert_trained(store: TrackingStore, trials: list[TrialRecord], validated: Sequence[int]) -> None:
    """Compare all live reports with those of undisturbed trials.

    Args:
        store: the tracking store.
        trials: the trials.
        validated: numbers of batches after which the search asks for a validation.
    """
    for name, group, steps in ((METRIC, "validation", validated), ("loss", "training", range(PERIOD, 99, PERIOD))):
        for first in range(0, len(trials), 500):
            some = trials[first : first + 500]
            curves = store.curves([trial.id for trial in some], name, group=group)
            for trial in some:
                expected = [(step, training_loss(trial.seed, step)) for step in steps if step <= trial.steps_completed]
                assert curves.get(trial.id, []) == expected, f"{name} of {trial}: {list(store.metrics(trial.id))}"


def assert_search_recorded(store: TrackingStore, experiment: ExperimentRecord, directory: Path) -> None:
    """Replay the search."""
    with open_search_method(parse_config(experiment.config), directory) as method:
        for event in store.search_events(experiment.id):
            actions = getattr(method, event.event[0])(*event.event[1:])
            assert [action_to_json(action) for action in actions] == event.actions
