"""Single, random and grid search."""

from __future__ import annotations

from typing import Any

import pytest

from det_core.config import grid_points, parse_config, sample_hyperparameters
from det_core.errors import ConfigError
from det_core.interfaces.search_method import Create

from .playing import SPACE, Game, brief, make


def test_a_single_trial_trains_and_closes() -> None:
    method = make("single", max_length={"batches": 10})
    assert brief(method.start()) == "+0 0:10"
    assert method.progress({0: 5}) == 0.5
    assert brief(method.on_validation(0, 10, 0.1)) == "-0"
    assert method.progress({0: 10}) == 1


def test_a_single_trial_is_not_replaced() -> None:
    method = make("single", max_length=10)
    method.start()
    assert brief(method.on_exit(0, "invalid_hp")) == ""


def test_a_random_search_fills_its_slots_and_replaces_invalid_trials() -> None:
    method = make("random", max_length=10, max_trials=4, max_concurrent_trials=2)
    assert brief(method.start()) == "+0 0:10 +1 1:10"
    assert brief(method.on_validation(1, 10, 0.1)) == "-1 +2 2:10"
    assert brief(method.on_exit(0, "invalid_hp")) == "+3 3:10"
    assert brief(method.on_exit(2, "error")) == "+4 4:10"  # the fourth valid trial
    assert brief(method.on_validation(3, 10, 0.1)) == "-3"
    assert brief(method.on_validation(4, 10, 0.1)) == "-4"


@pytest.mark.parametrize("name", ["random", "async_halving", "adaptive_asha"])
def test_a_search_ends_even_if_no_hyperparameters_work(name: str) -> None:
    options = {"num_rungs": 2} if name == "async_halving" else {}
    game = Game(lambda: make(name, max_length=10, max_trials=3, **options))
    while game.ordered:
        game.report("on_exit", next(iter(game.ordered)), "invalid_hp")
    assert len(game.created) == 3 + 10 * 3


def test_a_trials_hyperparameters_follow_from_seed_and_number() -> None:
    def created(seed: int, name: str, **options: Any) -> list[Any]:
        actions = make(name, seed=seed, max_length=10, max_trials=8, max_concurrent_trials=0, **options).start()
        return [action.hparams for action in actions if isinstance(action, Create)]

    drawn = created(1, "random")
    assert len(drawn) == len({str(hparams) for hparams in drawn}) == 8
    assert created(1, "random") == drawn != created(2, "random")
    assert created(1, "async_halving", num_rungs=1)[0] == drawn[0]


def test_a_command_needs_no_max_length() -> None:
    searcher = {"name": "random", "metric": "loss", "max_trials": 1}
    assert parse_config({"entrypoint": "python train.py", "searcher": searcher}).searcher.max_length is None
    with pytest.raises(ConfigError, match="max_length"):
        parse_config({"entrypoint": "model:Trial", "searcher": searcher})


# hyperparameter, and its points in a grid
POINTS: list[tuple[Any, list[Any]]] = [
    (5, [5]),
    ({"type": "const", "val": "x"}, ["x"]),
    ({"type": "categorical", "vals": ["a", 1, True, "a"]}, ["a", 1, True]),
    ({"type": "int", "minval": 0, "maxval": 10, "count": 3}, [0, 5, 10]),
    ({"type": "int", "minval": 0, "maxval": 10, "count": 4}, [0, 3, 7, 10]),
    ({"type": "int", "minval": 0, "maxval": 5, "count": 3}, [0, 3, 5]),  # 2.5 is rounded away from zero
    ({"type": "int", "minval": -5, "maxval": 0, "count": 3}, [-5, -3, 0]),
    ({"type": "int", "minval": 1, "maxval": 3, "count": 9}, [1, 2, 3]),
    ({"type": "int", "minval": 1, "maxval": 4, "count": 1}, [3]),
    ({"type": "int", "minval": 7, "maxval": 7, "count": 2}, [7]),
    ({"type": "int", "minval": 0, "maxval": 10**18 + 2, "count": 3}, [0, 5 * 10**17 + 1, 10**18 + 2]),
    ({"type": "double", "minval": 0, "maxval": 1, "count": 5}, [0.0, 0.25, 0.5, 0.75, 1.0]),
    ({"type": "double", "minval": 1, "maxval": 2, "count": 1}, [1.5]),
    ({"type": "double", "minval": 2, "maxval": 2, "count": 3}, [2.0]),
    ({"type": "log", "base": 10, "minval": -2, "maxval": 0, "count": 3}, [0.01, 0.1, 1.0]),
    ({"type": "log", "base": 4, "minval": 0, "maxval": 1, "count": 1}, [2.0]),
    ({"type": "log", "base": 1, "minval": 0, "maxval": 1, "count": 10**15}, [1.0]),
]


@pytest.mark.parametrize(("hyperparameter", "points"), POINTS, ids=str)
def test_a_grid_has_the_expected_points(hyperparameter: Any, points: list[Any]) -> None:
    found = [point["x"] for point in grid_points({"x": hyperparameter})]
    assert list(map(type, found)) == list(map(type, points))
    assert found == (pytest.approx(points) if isinstance(points[0], float) else points)


def test_a_grid_search_starts_with_the_last_point() -> None:
    space = {
        "b": {"x": {"type": "categorical", "vals": ["p", "q"]}, "fixed": 1},
        "a": {"type": "int", "minval": 1, "maxval": 2, "count": 2},
    }
    method = make("grid", hyperparameters=space, max_length=10, max_concurrent_trials=3)
    actions = [*method.start(), *method.on_exit(0, "invalid_hp")]  # the invalid point is not replaced
    created = [(action.hparams["a"], action.hparams["b"]["x"]) for action in actions if isinstance(action, Create)]
    assert created == [(2, "q"), (2, "p"), (1, "q"), (1, "p")]
    assert [brief(method.on_validation(trial, 10, 0.1)) for trial in (1, 2, 3)] == ["-1", "-2", "-3"]


# hyperparameters, and words of the problem
NO_GRID = [
    ({"a": {"b": {"type": "double", "minval": 0, "maxval": 1}}}, "hyperparameters.a.b: expected a `count`"),
    (
        {name: {"type": "int", "minval": 1, "maxval": 99, "count": 50} for name in "ab"},
        "expected at most 2000 points, but the grid has 2500",
    ),
    *(
        ({"x": {"type": kind, "minval": 0, "maxval": maxval, "count": 10**15, **base}}, "the grid has 1000000000000000")
        for kind, maxval, base in (("int", 2**62, {}), ("double", 1, {}), ("log", 1, {"base": 10}))
    ),
    (
        {f"x{n}": {"type": "double", "minval": 0, "maxval": 1, "count": 10**9} for n in range(500)},
        "the grid has about 10 ** 4500",
    ),
    (
        {name: {"type": "int", "minval": 1, "maxval": 50, "count": 50} for name in ("a.b", "c")}
        | {"a": {"b": {"type": "int", "minval": 1, "maxval": 60, "count": 60}}},
        "the grid has 150000",
    ),
]


@pytest.mark.parametrize(("hyperparameters", "words"), NO_GRID)
def test_hyperparameters_without_a_grid_are_refused_with_the_config(hyperparameters: Any, words: str) -> None:
    searcher = {"name": "grid", "metric": "loss", "max_length": 10}
    with pytest.raises(ConfigError) as caught:
        parse_config({"entrypoint": "model:Trial", "searcher": searcher, "hyperparameters": hyperparameters})
    assert words in str(caught.value) and str(caught.value).startswith("<config>: searcher")


def test_a_search_does_not_create_more_trials_than_it_has_or_than_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(make("random", max_length=1, max_trials=3, max_concurrent_trials=10**15).start()) == 2 * 3
    for module in ("independent", "asha"):
        monkeypatch.setattr(f"det_core.search.{module}.MAX_AT_ONCE", 4)
    for limit in (0, 10**15):
        options = {"max_length": 64, "max_trials": 10**15, "max_concurrent_trials": limit}
        assert len(make("random", **options).start()) == 2 * 4
        assert len(make("async_halving", num_rungs=3, **options).start()) == 2 * 4


def test_grid_and_random_values_have_the_same_form() -> None:
    space = {**SPACE, "lr": {**SPACE["lr"], "count": 1}, "depth": {**SPACE["depth"], "count": 1}, "n": {"m": None}}
    import random

    [point] = grid_points(space)
    sampled = sample_hyperparameters(space, random.Random(0))
    assert {name: type(value) for name, value in point.items()} == {
        name: type(value) for name, value in sampled.items()
    }
