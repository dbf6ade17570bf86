"""Rules for random searches with random results, failures and crashes."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from det_core.testing import campaign_seeds

from .playing import Game, make

SEEDS = campaign_seeds(few=240, many=2000)
BATCH = 40


def draw(rng: random.Random) -> dict[str, Any]:
    """Draw the searcher block of a config."""
    name = rng.choice(["single", "random", "grid", "async_halving", "adaptive_asha", "pbt"])
    most, length, at_once = rng.randint(1, 40), rng.choice([1, 2, 7, 16, 100, 1000]), rng.choice([0, 1, 2, 5, 16])
    halving = {
        "max_length": length,
        "divisor": rng.choice([1.5, 2, 3, 4]),
        "stop_once": rng.random() < 0.4,
        "max_concurrent_trials": at_once,
        **({"budget": length * rng.randint(1, 6)} if rng.random() < 0.2 else {"max_trials": most}),
    }
    adaptive = {"mode": rng.choice(["standard", "aggressive", "conservative"]), "max_rungs": rng.randint(1, 6)}
    brackets = {"bracket_rungs": [rng.randint(1, 5) for _ in range(rng.randint(1, 4))]} if rng.random() < 0.3 else {}
    explore = {"resample_probability": rng.random(), "perturb_factor": rng.random()}
    options: dict[str, dict[str, Any]] = {
        "single": {"max_length": length},
        "random": {"max_length": length, "max_trials": most, "max_concurrent_trials": at_once},
        "grid": {"max_length": length, "max_concurrent_trials": at_once},
        "async_halving": {"num_rungs": rng.randint(1, 5), **halving},
        "adaptive_asha": {**adaptive, **brackets, **halving},
        "pbt": {
            "population_size": rng.randint(1, 12),
            "num_rounds": rng.randint(1, 5),
            "length_per_round": length,
            "replace_function": {"truncate_fraction": rng.choice([0.0, 0.2, 0.5])},
            "explore_function": explore,
        },
    }
    return {"name": name, **options[name]}


GRID = {
    "x": {"type": "int", "minval": 0, "maxval": 9, "count": 4},
    "y": {"type": "categorical", "vals": [1, 2, 3]},
    "z": {"type": "log", "base": 10, "minval": -3, "maxval": 0, "count": 2},
}


@pytest.mark.campaign
@pytest.mark.parametrize("first", SEEDS[::BATCH])
def test_any_search_keeps_the_rules(first: int) -> None:
    for seed in range(first, min(first + BATCH, SEEDS.stop)):
        rng = random.Random(seed)
        searcher = draw(rng)
        game = Game(partial(make, hyperparameters=GRID, seed=seed, **searcher))
        invalid, error = rng.choice([(0, 0), (0.2, 0.2), (0, 0.9), (0.5, 0)])
        game.play(rng, invalid=invalid, error=error, crash=0.05)
        check(game, searcher)


def check(game: Game, searcher: dict[str, Any]) -> None:
    assert set(game.created) == game.closed, "every trial ended"
    assert game.progress == pytest.approx(1)
    replaced = sum(event[0] == "on_exit" and event[-1] == "invalid_hp" for event in game.events)
    if "max_trials" in searcher:
        assert searcher["max_trials"] <= len(game.created) <= searcher["max_trials"] + replaced
    if searcher["name"] == "grid":
        points = [str(action.hparams) for action in game.created.values()]
        assert len(points) == len(set(points)) == 24
    if searcher.get("max_concurrent_trials"):
        assert game.most_open <= searcher["max_concurrent_trials"]
    lengths = [length for length in game.trained.values() if length]
    if "max_length" in searcher:
        assert max(lengths, default=0) <= searcher["max_length"]


# Every built-in method continues alike whether or not it is restored after each event.
EVERY: list[dict[str, Any]] = [
    {"name": "single", "max_length": 5},
    {"name": "random", "max_length": 5, "max_trials": 9, "max_concurrent_trials": 3},
    {"name": "grid", "max_length": 5, "max_concurrent_trials": 3},
    {"name": "async_halving", "num_rungs": 3, "max_length": 16, "max_trials": 20, "divisor": 2},
    {"name": "async_halving", "num_rungs": 3, "max_length": 16, "max_trials": 20, "divisor": 2, "stop_once": True},
    {"name": "adaptive_asha", "max_length": 64, "max_trials": 20, "mode": "conservative"},
    {
        "name": "pbt",
        "population_size": 6,
        "num_rounds": 4,
        "length_per_round": 3,
        "replace_function": {"truncate_fraction": 0.5},
        "explore_function": {"resample_probability": 0.3, "perturb_factor": 0.2},
    },
]


@pytest.mark.parametrize("searcher", EVERY, ids=lambda searcher: searcher["name"])
def test_a_method_restored_from_any_snapshot_continues_alike(searcher: dict[str, Any]) -> None:
    build = partial(make, hyperparameters=GRID, **searcher)
    game = Game(build)
    rng = random.Random(3)
    while game.open:
        game.save()
        trial = rng.choice(list(game.open))
        if rng.random() < 0.2:
            game.tell("on_exit", trial, rng.choice(["error", "invalid_hp"]))
        else:
            game.tell("on_validation", trial, game.open[trial], rng.random())
        expected = game.method.state()
        game.crash(from_snapshot=True)
        assert game.method.state() == expected
