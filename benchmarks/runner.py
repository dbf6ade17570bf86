"""Speed of the runner with 10 000 trials that use its queue, threads, search and tracking store but no processes.

python benchmarks/runner.py [TRIALS]
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from det_core.config import parse_config
from det_core.interfaces.records import State, TrialRecord
from det_core.runner._recorded_search import RecordedSearch
from det_core.runner._search_loop import SearchLoop
from det_core.runner._stop_requests import StopRequests
from det_core.runner._trial_pool import TrialPool
from det_core.runner._trial_runner import TrainingOutcome, TrainingResult
from det_core.search.method_selection import open_search_method
from det_core.tracking import open_store

AT_ONCE = 64


def train(trial: TrialRecord, requested: Callable[[], State | None]) -> TrainingResult:
    return TrainingResult(TrainingOutcome.COMPLETED, metric=random.Random(trial.seed).random())


def main(trials: int) -> None:
    searcher = {
        "name": "adaptive_asha",
        "metric": "loss",
        "max_length": {"batches": 1000},
        "max_trials": trials,
        "max_concurrent_trials": AT_ONCE,
    }
    space = {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": 0}}
    config = parse_config({"entrypoint": "model:Trial", "searcher": searcher, "hyperparameters": space})
    with tempfile.TemporaryDirectory() as directory, open_store(f"sqlite:///{directory}/det.db") as store:
        experiment = store.create_experiment(config=config.dump())

        def search_again() -> float:
            start = time.perf_counter()
            with open_search_method(config, Path()) as method:
                RecordedSearch(store, experiment.id, method, seed=0).begin()
            return time.perf_counter() - start

        requests = StopRequests(store, experiment.id)
        start, cpu = time.perf_counter(), time.process_time()
        with open_search_method(config, Path()) as method, TrialPool(train, requests, AT_ONCE) as training:
            search = RecordedSearch(store, experiment.id, method, seed=0)
            search.begin()
            SearchLoop(store, experiment.id, search, training, requests, smaller_is_better=True, lease="").run(
                lambda: None
            )
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        events = len(store.search_events(experiment.id))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{trials} trials, {events} events: {events / seconds:.0f}/s, {events / cpu:.0f} per CPU second")
        print(f"resumed in {search_again():.2f} s; peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
