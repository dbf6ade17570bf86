"""Quality and speed of search methods, measured without training.

For quality, the LCBench surrogate of YAHPO Gym (github.com/slds-lmu/yahpo_data) predicts the accuracy and the time of
every epoch. 8 workers run in simulated time, on 6 tasks with 10 seeds each. R is the time of a typical full training of
the task. The regret of a method is the difference between its accuracy and the best accuracy that any method found on
the task. It is measured after 1, 4 and 8 R. The other figure is the time at which a method first has the accuracy that
random search has after 8 R. det's methods are compared with Optuna's TPE, alone and with its Hyperband pruner, which
gets a report after every epoch. The last table has the difference of each method's regret to that of TPE with Hyperband
on the same task and with the same seed.

    python benchmarks/search.py [DIRECTORY]    with the surrogate's files in it or below; default: $LCBENCH
"""

from __future__ import annotations

import heapq
import importlib.util
import itertools
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from environments import programs

from det_core.config import parse_config, sample_hyperparameters
from det_core.interfaces.search_method import SearchMethod
from det_core.search.method_selection import open_search_method
from det_core.search.simulation import SimulatedOutcome, simulate_search

TASKS = ("3945", "126026", "167168", "168868", "189873", "189906")
SEEDS = 10
"""Number of seeds for each task. No two runs begin with the same trials."""
WORKERS = 8
EPOCHS = 52
LIMIT = 8
"""Number of consecutive full trainings that each worker has time for."""

CHECKED = (1, 4, LIMIT)
"""Times after which regrets are compared, in R."""
FASTER = {
    "async_halving, 4 rungs": 4.8,
    "async_halving, stop_once": 5.2,
    "adaptive_asha, standard": 4.3,
    "adaptive_asha, aggressive": 5.4,
    "adaptive_asha, conservative": 4.2,
}
"""Goals for 8 R / the median time until a method is as good as random search, from the first measurement with these
seeds."""

# In the order of the surrogate's inputs.
SPACE: dict[str, Any] = {
    "batch_size": {"type": "log", "base": 2, "minval": 4, "maxval": 9},
    "learning_rate": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "momentum": {"type": "double", "minval": 0.1, "maxval": 0.99},
    "weight_decay": {"type": "double", "minval": 1e-5, "maxval": 0.1},
    "num_layers": {"type": "int", "minval": 1, "maxval": 5},
    "max_units": {"type": "log", "base": 2, "minval": 6, "maxval": 10},
    "max_dropout": {"type": "double", "minval": 0, "maxval": 1},
}
WHOLE = ("batch_size", "max_units")
HALVING = {"max_trials": 4096, "max_concurrent_trials": WORKERS}
METHODS: dict[str, dict[str, Any]] = {
    "random": {"name": "random", **HALVING},
    "async_halving, 4 rungs": {"name": "async_halving", "num_rungs": 4, **HALVING},
    "async_halving, stop_once": {"name": "async_halving", "num_rungs": 4, "stop_once": True, **HALVING},
    **{f"adaptive_asha, {mode}": {"name": "adaptive_asha", "mode": mode, **HALVING} for mode in
       ("standard", "aggressive", "conservative")},
    "optuna": {"name": "optuna", **HALVING},
}  # fmt: skip
BASELINE = "Optuna TPE + Hyperband"
"""Method whose regret is subtracted from that of the others."""
RESAMPLES = 10_000
"""Number of bootstrap samples of each interval."""

Curve = tuple[list[float], list[float]]
"""Accuracy in percent after each epoch, and seconds until then."""


class Surrogate:
    """Surrogate model that predicts the results of training on one task."""

    def __init__(self, directory: Path, task: str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(directory / "model.onnx"), options)
        self._task = json.loads((directory / "encoding.json").read_text())["OpenML_task_id"][task]
        self._known: dict[str, Curve] = {}
        rng = random.Random(0)
        self.full = statistics.median(self.curve(sample_hyperparameters(SPACE, rng))[1][-1] for _ in range(50))
        """Seconds of a typical full training."""

    def curve(self, hparams: Mapping[str, Any]) -> Curve:
        """Return the predicted learning curve of a full training."""
        import numpy as np

        key = repr(sorted(hparams.items()))
        if key not in self._known:
            names = (
                "batch_size",
                "learning_rate",
                "momentum",
                "weight_decay",
                "num_layers",
                "max_units",
                "max_dropout",
            )
            row = [round(hparams[name]) if name in WHOLE else hparams[name] for name in names]
            continuous = np.array([[epoch, *row] for epoch in range(1, EPOCHS + 1)], np.float32)
            task = np.full((EPOCHS, 1), self._task, np.int32)
            (predicted,) = self._session.run(None, {"x_cat": task, "x_cont": continuous})
            seconds = np.maximum.accumulate(np.maximum(predicted[:, 0], 1e-3))
            self._known[key] = predicted[:, 1].tolist(), seconds.tolist()
        return self._known[key]


Results = list[tuple[float, float]]
"""Time in seconds and accuracy of every result, in order of time."""
Found = Iterator[tuple[float, float]]
"""Endless iterator of such results."""


@contextmanager
def method_of(searcher: Mapping[str, Any], seed: int) -> Iterator[SearchMethod]:
    config = parse_config(
        {
            "entrypoint": "model:Trial",
            "searcher": {"metric": "accuracy", "max_length": {"epochs": EPOCHS}, **searcher},
            "hyperparameters": SPACE,
            "reproducibility": {"experiment_seed": seed},
        }
    )
    with open_search_method(config, Path()) as method:
        yield method


def det(searcher: Mapping[str, Any], surrogate: Surrogate, seed: int) -> Found:
    def train(trial: int, hparams: Mapping[str, Any], start: int, length: int | None) -> SimulatedOutcome:
        accuracy, seconds = surrogate.curve(hparams)
        end = length or EPOCHS
        return SimulatedOutcome(seconds[end - 1] - (seconds[start - 1] if start else 0), -accuracy[end - 1])

    with method_of(searcher, seed) as method:
        for result in simulate_search(method, train, WORKERS):
            yield result.time, -result.outcome.metric


def optuna(surrogate: Surrogate, seed: int, *, prunes: bool) -> Found:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    hyperband = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=EPOCHS, reduction_factor=4)
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=hyperband if prunes else optuna.pruners.NopPruner(),
    )

    def begin() -> tuple[Any, Curve]:
        trial = study.ask()
        return trial, surrogate.curve(
            {
                "batch_size": trial.suggest_int("batch_size", 16, 512, log=True),
                "learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True),
                "momentum": trial.suggest_float("momentum", 0.1, 0.99),
                "weight_decay": trial.suggest_float("weight_decay", 1e-5, 0.1),
                "num_layers": trial.suggest_int("num_layers", 1, 5),
                "max_units": trial.suggest_int("max_units", 64, 1024, log=True),
                "max_dropout": trial.suggest_float("max_dropout", 0, 1),
            }
        )

    started = itertools.count()
    running: list[tuple[float, int, int, Any, Curve]] = []

    def train(now: float, epoch: int, trial: Any, curve: Curve) -> None:
        """Start an epoch of the trial at the time ``now``."""
        seconds = curve[1]
        duration = seconds[epoch - 1] - (seconds[epoch - 2] if epoch > 1 else 0)
        heapq.heappush(running, (now + duration, next(started), epoch, trial, curve))

    for _ in range(WORKERS):
        train(0, 1, *begin())
    while True:
        now, _, epoch, trial, curve = heapq.heappop(running)
        accuracy = curve[0][epoch - 1]
        yield now, accuracy
        trial.report(accuracy, epoch)
        if epoch < EPOCHS and not trial.should_prune():
            train(now, epoch + 1, trial, curve)
            continue
        if epoch < EPOCHS:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, accuracy)
        train(now, 1, *begin())


def until(limit: float, found: Found) -> Results:
    """Return the results until ``limit`` seconds."""
    return list(itertools.takewhile(lambda result: result[0] <= limit, found))


def reached(found: Results, target: float) -> float:
    """Return the time in seconds at which an accuracy is reached, or infinity if it is not."""
    return next((second for second, accuracy in found if accuracy >= target), float("inf"))


def best(found: Results, limit: float) -> float:
    """Return the best accuracy until ``limit`` seconds, or 0 if there is no result until then."""
    return max((accuracy for second, accuracy in found if second <= limit), default=0.0)


def quality(directory: Path) -> None:
    contenders: dict[str, Callable[[Surrogate, int], Found]] = {
        name: partial(det, searcher) for name, searcher in METHODS.items()
    }
    contenders["Optuna TPE"] = partial(optuna, prunes=False)
    contenders[BASELINE] = partial(optuna, prunes=True)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    regrets: dict[str, dict[int, list[float]]] = {name: {after: [] for after in CHECKED} for name in contenders}
    for number, task in enumerate(TASKS):
        surrogate = Surrogate(directory, task)
        full, limit = surrogate.full, LIMIT * surrogate.full
        runs = [
            {name: until(limit, contender(surrogate, seed)) for name, contender in contenders.items()}
            for seed in range(number * SEEDS, (number + 1) * SEEDS)
        ]
        optimum = max(best(found, limit) for run in runs for found in run.values())
        for run in runs:
            target = best(run["random"], limit)
            for name, found in run.items():
                times[name].append(reached(found, target) / full)
                for after in CHECKED:
                    regrets[name][after].append(optimum - best(found, after * full))
    _report(times, regrets)
    _report_differences(regrets)


def _report(times: Mapping[str, list[float]], regrets: Mapping[str, Mapping[int, list[float]]]) -> None:
    print(f"{'':29}  median regret in percent after     R until as good as random at {LIMIT} R")
    headers = "".join(f"{f'{after} R':>9}" for after in CHECKED)
    print(f"{'':29}{headers}{'quartile':>12}{'median':>9}{'quartile':>9}{f'{LIMIT} R / median':>14}{'goal':>6}")
    for name, values in times.items():
        low, middle, high = (sorted(values)[round(part * (len(values) - 1))] for part in (0.25, 0.5, 0.75))
        medians = "".join(f"{statistics.median(regrets[name][after]):9.2f}" for after in CHECKED)
        faster = round(LIMIT / middle, 1)
        goal = FASTER.get(name)
        verdict = "" if goal is None else f"{goal:6.1f}{'  MISSED' if faster < goal else ''}"
        print(f"{name:29}{medians}{low:12.2f}{middle:9.2f}{high:9.2f}{faster:13.1f}x{verdict}")
    runs = len(TASKS) * SEEDS
    print(f"inf: not within {LIMIT} R; {runs} runs each; regret: difference to the best accuracy on the task")


def _report_differences(regrets: Mapping[str, Mapping[int, list[float]]]) -> None:
    print(f"\n{'':29}  mean of regret minus that of {BASELINE}, with its 95 % interval, after")
    print(f"{'':29}" + "".join(f"{f'{after} R':>26}" for after in CHECKED))
    for name, of_name in regrets.items():
        if name != BASELINE:
            cells = [_difference(of_name[after], regrets[BASELINE][after]) for after in CHECKED]
            print(f"{name:29}" + "".join(f"{cell:>26}" for cell in cells))


def _difference(regrets: list[float], baseline: list[float]) -> str:
    """Return the mean of paired differences with its 95 % bootstrap interval."""
    differences, rng = [one - other for one, other in zip(regrets, baseline, strict=True)], random.Random(0)
    means = sorted(statistics.fmean(rng.choices(differences, k=len(differences))) for _ in range(RESAMPLES))
    low, high = (means[round(part * (RESAMPLES - 1))] for part in (0.025, 0.975))
    verdict = " WORSE" if low > 0 else ""
    return f"{statistics.fmean(differences):.2f} [{low:.2f}, {high:.2f}]{verdict}"


def scale() -> None:
    import psutil

    trials = 10_000
    searcher = {"name": "adaptive_asha", "max_trials": trials, "max_concurrent_trials": 64}
    before = psutil.Process().memory_info().rss
    start = time.process_time()
    events = 0
    with method_of(searcher, 1) as method:
        chance = lru_cache(None)(lambda trial: random.Random(trial).random())
        for _ in simulate_search(
            method, lambda trial, _, begin, end: SimulatedOutcome((end or 1) - begin, chance(trial)), 64
        ):
            events += 1
        seconds = time.process_time() - start
        start = time.process_time()
        state = json.dumps(method.state())
        print(f"{trials} trials of adaptive_asha: {events} results, {events / seconds:.0f} per CPU second,")
        print(f"{(psutil.Process().memory_info().rss - before) / 2**20:.0f} MiB more memory; a snapshot of", end=" ")
        print(f"{len(state) / 2**20:.1f} MiB takes {1000 * (time.process_time() - start):.0f} ms\n")


def main() -> None:
    if importlib.util.find_spec("onnxruntime") is None:
        python = programs("search") / "python"
        os.execv(python, [str(python), *sys.argv])
    scale()
    directory = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("LCBENCH")
    if not directory:
        print("quality is skipped; give the directory with LCBench's model.onnx and encoding.json, or set LCBENCH")
        return
    model = next(Path(directory).rglob("model.onnx"), None)
    if model is None:
        sys.exit(f"{directory}: expected model.onnx and encoding.json of LCBench there or below")
    quality(model.parent)


if __name__ == "__main__":
    main()
