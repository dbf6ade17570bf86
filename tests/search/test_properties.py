"""Rules for random searches with random results, failures and crashes."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
from det_testing import campaign_seeds

from .playing import Game, make

SEEDS = campaign_seeds(few=40, many=2000)
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
    replaced = sum(event[-1] == "invalid_hp" for event in game.events)
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
