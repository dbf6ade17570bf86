"""Searches whose runner and trials are killed at random."""

from __future__ import annotations

import random
import time
from collections import deque
from pathlib import Path
from typing import Any

import psutil
import pytest
from det_testing import campaign_seeds

from det_core.config import parse_config
from det_core.interfaces.records import State
from det_core.interfaces.search_method import Action, Create, SearchMethod, Train, action_to_json
from det_core.interfaces.tracking import TrackingStore
from det_core.search.method_selection import open_search_method

from .conftest import Submit, start_runner

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.campaign, pytest.mark.timeout(600)]


SEEDS = campaign_seeds(few=1, many=100)
PATIENCE = 300.0
TRIALS, LONGEST = 16, 16
SPACE = {"x": {"type": "int", "minval": 0, "maxval": 3}, "y": {"type": "double", "minval": 0.0, "maxval": 1.0}}
GRID = {"x": {**SPACE["x"], "count": 4}, "y": {**SPACE["y"], "count": 4}}
SEARCHES: dict[str, dict[str, Any]] = {
    "random": {"name": "random", "max_trials": TRIALS},
    "grid": {"name": "grid"},
    "halving_one_by_one": {
        "name": "async_halving", "max_trials": TRIALS, "num_rungs": 2, "divisor": 4, "max_concurrent_trials": 1,
    },
    "halving": {
        "name": "async_halving", "max_trials": TRIALS, "num_rungs": 3, "divisor": 2, "max_concurrent_trials": 4,
    },
}  # fmt: skip
SAME_EVERY_TIME = ("random", "grid", "halving_one_by_one")

TRIAL = """
def __init__(self, context):
    super().__init__(context)
    note = os.open({place!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(note, f"{{det.get_cluster_info().trial.trial_id}} {{os.getpid()}}\\n".encode())
    import fcntl
    self.mine = open({place!r} + f".{{det.get_cluster_info().trial.trial_id}}", "w")
    try:
        fcntl.flock(self.mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.write(note, b"twice\\n")
def on_batch(self, batch):
    time.sleep(0.01)
"""


def loss(seed: int, length: int) -> float:
    """Return the validation loss of the toy trial with a seed after a number of batches."""
    chance, weight = random.Random(seed), 0.0
    for _ in range(length):
        weight += chance.gauss(0, 1)
    return abs(weight - 1)


def undisturbed(method: SearchMethod, seed: int) -> dict[int, int]:
    """Play the search with one trial at a time, and return the final length of each trial."""
    orders: deque[Train] = deque()
    trained: dict[int, int] = {}

    def take(actions: Any) -> None:
        orders.extend(action for action in actions if isinstance(action, Train))

    take(method.start())
    while orders:
        order = orders.popleft()
        assert order.length
        trained[order.request_id] = order.length
        take(method.on_validation(order.request_id, order.length, loss(seed + order.request_id, order.length)))
    return trained


def disturb(store: TrackingStore, experiment_id: int, chance: random.Random) -> int:
    """Run an experiment to its end, kill its runner and workers at random, and return the number of kills."""
    kills = chance.randint(2, 6)
    killed = 0
    deadline = time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < deadline
        runner = start_runner(store, experiment_id)
        try:
            while runner.poll() is None and time.monotonic() < deadline:
                if killed == kills:
                    runner.wait(deadline - time.monotonic())
                    break
                time.sleep(chance.uniform(0.1, 2.0))
                victim = runner.pid if chance.random() < 0.5 else worker_of(runner.pid, chance)
                if victim and runner.poll() is None:
                    psutil.Process(victim).kill()
                    killed += 1
        except psutil.NoSuchProcess:
            pass  # it ended just before
        finally:
            code = runner.poll()
            if code is None and killed != kills:
                runner.kill()
            code = runner.wait(240)
        if code == 0:
            return killed


def worker_of(runner: int, chance: random.Random) -> int | None:
    try:
        children = psutil.Process(runner).children(recursive=True)
        workers = [child.pid for child in children if "det_core.launch.worker" in child.cmdline()]
    except psutil.NoSuchProcess:
        return None
    return chance.choice(workers) if workers else None


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_searches_end_as_undisturbed_ones(
    seed: int, store: TrackingStore, new_experiment: Submit, tmp_path: Path
) -> None:
    name = list(SEARCHES)[seed % len(SEARCHES)]
    searcher = {**SEARCHES[name], "metric": "validation_loss", "max_length": {"batches": LONGEST}}
    place = tmp_path / "notes"
    experiment = new_experiment(
        TRIAL.format(place=str(place)),
        searcher=searcher,
        hyperparameters=GRID if name == "grid" else SPACE,
        launcher={"type": "local", "slots": 2},
        scheduling_unit=4,
        min_checkpoint_period={"batches": 2},
        max_restarts=20,
        reproducibility={"experiment_seed": seed},
    )
    disturb(store, experiment.id, random.Random(seed))

    assert store.experiment(experiment.id).state is State.COMPLETED
    trials = store.trials(experiment.id)
    assert {trial.state for trial in trials} == {State.COMPLETED}
    assert "twice" not in place.read_text()

    config = parse_config(experiment.config)
    if name in SAME_EVERY_TIME:
        with open_search_method(config, tmp_path) as method:
            lengths = undisturbed(method, seed)
        assert {trial.request_id: trial.steps_completed for trial in trials} == lengths
    for trial in trials:
        last = list(store.metrics(trial.id, group="validation"))[-1]
        expected = loss(seed + trial.request_id, trial.steps_completed)
        assert (last.steps_completed, last.metrics) == (trial.steps_completed, {"validation_loss": expected})

    with open_search_method(config, tmp_path) as method:
        for event in store.search_events(experiment.id):
            actions: list[Action] = list(getattr(method, event.event[0])(*event.event[1:]))
            assert [action_to_json(action) for action in actions] == event.actions
            for action in actions:
                if isinstance(action, Create):
                    assert trials[action.request_id].hparams == action.hparams
