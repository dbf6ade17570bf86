"""Types of hyperparameters, and sampling of their values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from det_core.config import parse_config, sample_hyperparameters
from det_core.config._hyperparameters import space_of
from det_core.errors import ConfigError


def draw(hyperparameter: Any, count: int = 500) -> list[Any]:
    rng = random.Random(0)
    return [sample_hyperparameters({"x": hyperparameter}, rng)["x"] for _ in range(count)]


CONSTANTS = [3, 1.5, "adam", None, True, [1, [2]], {"type": "const", "val": {"a": 1}}, {"type": "const", "val": None}]


@pytest.mark.parametrize("written", CONSTANTS, ids=str)
def test_a_constant_has_one_value(written: Any) -> None:
    expected = written["val"] if isinstance(written, dict) else written
    assert draw(written, 2) == [expected, expected]


# hyperparameter, condition for every value, values that must occur
RANGES: list[tuple[dict[str, Any], Callable[[Any], bool], set[Any]]] = [
    ({"type": "int", "minval": -1, "maxval": 2}, lambda x: type(x) is int, {-1, 0, 1, 2}),
    ({"type": "int", "minval": 4, "maxval": 4}, lambda x: x == 4, {4}),
    ({"type": "double", "minval": 1, "maxval": 2}, lambda x: 1 <= x <= 2 and type(x) is float, set()),
    ({"type": "log", "base": 10, "minval": -4, "maxval": -1}, lambda x: 1e-4 <= x <= 1e-1, set()),
    ({"type": "categorical", "vals": ["a", 1, None]}, lambda x: x in ("a", 1, None), {"a", 1, None}),
]


@pytest.mark.parametrize(("hyperparameter", "holds", "occur"), RANGES)
def test_values_are_in_their_range(
    hyperparameter: dict[str, Any], holds: Callable[[Any], bool], occur: set[Any]
) -> None:
    values = draw(hyperparameter)
    assert all(map(holds, values))
    assert occur <= set(values)


def test_log_is_uniform_in_the_exponent() -> None:
    values = draw({"type": "log", "base": 10, "minval": -4, "maxval": 0})
    assert 0.4 < sum(value < 1e-2 for value in values) / len(values) < 0.6


def test_nested_values_do_not_depend_on_the_order_of_the_config() -> None:
    space = {
        "b": {"y": {"type": "int", "minval": 0, "maxval": 10**9}, "x": 1},
        "a": {"type": "double", "minval": 0, "maxval": 1},
    }
    reordered = {"a": space["a"], "b": dict(reversed(space["b"].items()))}
    chosen = sample_hyperparameters(space, random.Random(5))
    assert list(chosen) == ["b", "a"]
    assert list(chosen["b"]) == ["y", "x"]
    assert sample_hyperparameters(reordered, random.Random(5)) == chosen


def test_a_parsed_config_and_its_dump_sample_alike() -> None:
    hyperparameters = {"lr": {"type": "log", "base": 2, "minval": -3, "maxval": 3}, "model": {"width": 3, "empty": {}}}
    config = parse_config(
        {"searcher": {"name": "single", "metric": "a", "max_length": 1}, "hyperparameters": hyperparameters}
    )
    samples = [
        sample_hyperparameters(space, random.Random(1))
        for space in (hyperparameters, config.hyperparameters, config.dump()["hyperparameters"])
    ]
    assert samples[0] == samples[1] == samples[2]
    assert samples[0]["model"] == {"width": 3, "empty": {}}


@pytest.mark.parametrize("hyperparameters", [{"": 1}, {"model": {"": {"type": "int", "minval": 1, "maxval": 2}}}])
def test_a_hyperparameter_without_a_name_is_rejected(hyperparameters: dict[str, Any]) -> None:
    config = {
        "name": "x",
        "entrypoint": "m:T",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
    }
    with pytest.raises(ConfigError, match="expected a name such as learning_rate, got an empty one"):
        parse_config({**config, "hyperparameters": hyperparameters})


@pytest.mark.parametrize(
    ("hyperparameter", "words"),
    [
        ({"type": "double", "minval": -1e308, "maxval": 1e308}, "expected maxval - minval to be a number"),
        ({"type": "log", "base": 10, "minval": 0, "maxval": 400}, r"base \*\* maxval.*between 1e-307 and 1e\+308"),
        ({"type": "log", "base": 10, "minval": -1e9, "maxval": 0}, r"base \*\* minval.*between 1e-307 and 1e\+308"),
        ({"type": "log", "base": 0.5, "minval": -1e9, "maxval": 0}, r"base \*\* minval.*between 1e-307 and 1e\+308"),
        ({"type": "int", "minval": 0, "maxval": 1 << 63}, "expected an integer of at most 64 bits"),
        ({"type": "int", "minval": -(10**400), "maxval": 0}, "expected an integer of at most 64 bits"),
    ],
)
def test_ranges_whose_values_cannot_be_sampled_are_refused(hyperparameter: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_config(
            {
                "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
                "hyperparameters": {"x": hyperparameter},
            }
        )


@pytest.mark.parametrize(
    ("hyperparameter", "least", "greatest"),
    [
        ({"type": "double", "minval": -8e307, "maxval": 8e307}, -8e307, 8e307),
        ({"type": "double", "minval": 1.5e308, "maxval": 1.7e308}, 1.5e308, 1.7e308),
        ({"type": "log", "base": 10, "minval": -307, "maxval": 308}, 1e-307, 1e308),
        ({"type": "log", "base": 0.1, "minval": -308, "maxval": 307}, 1e-307, 1e308),
        ({"type": "int", "minval": -(1 << 63), "maxval": (1 << 63) - 1}, -(1 << 63), (1 << 63) - 1),
    ],
)
def test_the_values_of_extreme_ranges_are_numbers(
    hyperparameter: dict[str, Any], least: float, greatest: float
) -> None:
    space = space_of({"x": {**hyperparameter, "count": 3}})["x"]
    for value in (*draw(hyperparameter), *space.points(), space.scale(greatest, 1.2), space.scale(least, 0.8)):
        assert least <= value <= greatest
