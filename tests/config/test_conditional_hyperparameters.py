"""Hyperparameters within the items of a categorical, which only trials with this item have."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from det_core.config import (
    choose_hyperparameters,
    explore_hyperparameters,
    grid_axes,
    grid_points,
    match_hyperparameters,
    parse_config,
    sample_hyperparameters,
)
from det_core.errors import ConfigError

MOMENTUM = {"type": "double", "minval": 0, "maxval": 1, "count": 3}
SPACE: dict[str, Any] = {
    "optimizer": {
        "type": "categorical",
        "vals": [
            {"name": "sgd", "momentum": MOMENTUM},
            {"name": "adamw"},
            {
                "type": "categorical",
                "vals": [{"deep": {"width": {"type": "int", "minval": 1, "maxval": 2, "count": 2}}}],
            },
        ],
    },
    "decay": {"type": "categorical", "vals": [0, {"type": "log", "base": 10, "minval": -4, "maxval": -1, "count": 2}]},
}


def config(hyperparameters: Any, searcher: str = "random") -> dict[str, Any]:
    limits = {"max_trials": 3} if searcher == "random" else {}
    return {
        "entrypoint": "model_def:Trial",
        "searcher": {"name": searcher, "metric": "loss", "max_length": 10, **limits},
        "hyperparameters": hyperparameters,
    }


def draw(space: Any, count: int = 200) -> list[dict[str, Any]]:
    rng = random.Random(0)
    return [sample_hyperparameters(space, rng) for _ in range(count)]


def test_only_trials_with_an_item_have_its_hyperparameters() -> None:
    optimizers = [trial["optimizer"] for trial in draw(SPACE)]
    assert {tuple(one) for one in optimizers} == {("name", "momentum"), ("name",), ("deep",)}
    momenta = {one["momentum"] for one in optimizers if "momentum" in one}
    assert len(momenta) > 20 and all(0 <= one <= 1 for one in momenta)
    assert {one["deep"]["width"] for one in optimizers if "deep" in one} == {1, 2}
    decays = [trial["decay"] for trial in draw(SPACE)]
    assert 0 in decays and all(one == 0 or 1e-4 <= one <= 0.1 for one in decays)


# Items without a definition, which trials get as they are.
PLAIN = [
    {"name": "RMSprop", "momentum": 0.9},
    {"kernel": {"type": "same", "minval": 0}},
    {"type": "int"},
    {"type": "int", "val": 3},
    {"type": "linear", "minval": 0, "maxval": 1},
    {"columns": [{"type": "double", "minval": 0, "maxval": 1}]},
    {"type": ["int"], "val": 1},
    {"type": "const", "val": {"type": "double", "minval": 0, "maxval": 1}},
    {},
]


@pytest.mark.parametrize("item", PLAIN, ids=str)
def test_items_without_a_definition_are_values(item: Any) -> None:
    expected = item["val"] if item.get("type") == "const" else item
    space = {"x": {"type": "categorical", "vals": [item]}}
    for hyperparameters in (space, parse_config(config(space)).hyperparameters):
        assert sample_hyperparameters(hyperparameters, random.Random(0)) == {"x": expected}
        assert grid_points(hyperparameters) == [{"x": expected}]


def test_a_dumped_space_is_equal() -> None:
    parsed = parse_config(config(SPACE))
    dumped = json.loads(json.dumps(parsed.dump()))
    assert parse_config(dumped) == parsed
    assert draw(dumped["hyperparameters"], 20) == draw(SPACE, 20)


# item, location of the problem, and its remedy
WRONG = [
    ({"m": {"type": "double", "minval": 0}}, "vals[0].m.maxval", "add `maxval: ...`"),
    ({"m": {"type": "double", "minval": 2, "maxval": 1}}, "vals[0].m.maxval", "expected maxval >= minval"),
    ({"m": {**MOMENTUM, "type": "duoble"}}, "vals[0].m.type", "write `{type: const, val: ...}`"),
    ({"m": {"type": "Categorical", "vals": [1]}}, "vals[0].m.type", "expected one of 'const', 'categorical', 'int',"),
    ({"m": {**MOMENTUM, "cuont": 3}}, "vals[0].m.cuont", "did you mean 'count'?"),
    (
        {"m": {"type": "categorical", "vals": [1, {"type": "int", "minval": 0.5, "maxval": 1}]}},
        "vals[0].m.vals[1].minval",
        "a whole",
    ),
]


@pytest.mark.parametrize(("item", "where", "remedy"), WRONG, ids=str)
def test_mistakes_within_an_item_are_found_in_the_config(item: Any, where: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(config({"x": {"type": "categorical", "vals": [item]}}))
    [problem] = str(caught.value).splitlines()
    assert f"hyperparameters.x.{where}: " in problem and remedy in problem


def test_a_grid_has_the_points_of_each_item() -> None:
    assert grid_axes(SPACE) == {"optimizer": 6, "decay": 3}
    points = grid_points(SPACE)
    assert len(points) == 18 == len({json.dumps(point) for point in points})
    assert [point["optimizer"] for point in points[:6]] == [
        *({"name": "sgd", "momentum": momentum} for momentum in (0, 0.5, 1)),
        {"name": "adamw"},
        *({"deep": {"width": width}} for width in (1, 2)),
    ]


def test_a_grid_counts_the_points_of_an_item_before_it_makes_them() -> None:
    item = {name: {**MOMENTUM, "count": 100} for name in "abcdefgh"}
    with pytest.raises(ConfigError, match=r"the grid has 10{16}"):
        parse_config(config({"x": {"type": "categorical", "vals": [item]}}, "grid"))
    without = {"a": {"type": "double", "minval": 0, "maxval": 1}}
    with pytest.raises(ConfigError, match=r"hyperparameters\.x\.a: expected a `count`"):
        parse_config(config({"x": {"type": "categorical", "vals": [without]}}, "grid"))


def test_choices_are_recognized_in_their_values() -> None:
    for trial in draw(SPACE, 50):
        chosen = match_hyperparameters(SPACE, trial)
        assert choose_hyperparameters(SPACE, lambda path, _, chosen=chosen: chosen[path]) == trial
    sgd = {"optimizer": {"name": "sgd", "momentum": 0.25}, "decay": 0}
    assert match_hyperparameters(SPACE, sgd) == {
        ("decay",): 0,
        ("optimizer",): 0,
        ("optimizer", 0, "momentum"): 0.25,
    }
    with pytest.raises(ValueError, match="expected values of the hyperparameters"):
        match_hyperparameters(SPACE, {**sgd, "decay": 2})


def test_a_variation_keeps_the_item_and_changes_its_hyperparameters() -> None:
    sgd = {"optimizer": {"name": "sgd", "momentum": 0.4}, "decay": 0}
    kept = explore_hyperparameters(SPACE, sgd, random.Random(0), resample_probability=0, perturb_factor=0.5)
    assert kept["optimizer"]["name"] == "sgd" and kept["optimizer"]["momentum"] in (0.2, pytest.approx(0.6))
    rng = random.Random(0)
    changed = [explore_hyperparameters(SPACE, sgd, rng, resample_probability=1, perturb_factor=0.5) for _ in range(50)]
    assert {tuple(one["optimizer"]) for one in changed} == {("name", "momentum"), ("name",), ("deep",)}


def test_a_variation_keeps_an_item_that_equals_another_one_in_python() -> None:
    items: list[Any] = [1, True, 1.0, {"deep": [0]}, {"deep": [False]}, {"type": "int", "minval": 2, "maxval": 2}]
    space = {"x": {"type": "categorical", "vals": [*items, {"type": "double", "minval": 2, "maxval": 2}]}}
    for value in (*items[:-1], 2, 2.0):
        kept = explore_hyperparameters(space, {"x": value}, random.Random(0), resample_probability=0, perturb_factor=0)
        assert json.dumps(kept["x"]) == json.dumps(value)


def test_a_quoted_number_within_an_item_is_noticed() -> None:
    item = {"m": MOMENTUM, "lr": {"type": "const", "val": "1e-3"}}
    notices = parse_config(config({"x": {"type": "categorical", "vals": [item]}})).notices
    assert [one for one in notices if "hyperparameters.x.lr is the text '1e-3'" in one]
