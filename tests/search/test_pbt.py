"""Population based training, calculated by hand."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from det_core.config import explore_hyperparameters
from det_core.interfaces.search_method import Create

from .playing import brief, make

PBT: dict[str, Any] = {
    "population_size": 4,
    "num_rounds": 3,
    "length_per_round": {"batches": 10},
    "replace_function": {"truncate_fraction": 0.25},
    "explore_function": {"resample_probability": 0.0, "perturb_factor": 0.2},
}


def test_variations_of_the_best_replace_the_worst() -> None:
    method = make("pbt", **PBT)
    assert brief(method.start()) == "+0 0:10 +1 1:10 +2 2:10 +3 3:10"
    assert [brief(method.on_validation(trial, 10, metric)) for trial, metric in ((0, 0.4), (1, 0.1), (2, 0.3))] == [
        ""
    ] * 3
    assert method.progress({}) == pytest.approx(3 / 12)
    assert brief(method.on_validation(3, 10, 0.2)) == "-0 +4<1 4:10 1:20 3:20 2:20"
    for trial, length, metric in ((1, 20, 0.1), (2, 20, 0.2), (3, 20, 0.5)):
        assert brief(method.on_validation(trial, length, metric)) == ""
    assert brief(method.on_validation(4, 10, 0.05)) == "-3 +5<4 5:10 4:20 1:30 2:30"
    for trial, length in ((1, 30), (2, 30), (4, 20)):
        assert brief(method.on_validation(trial, length, trial)) == ""
    assert brief(method.on_validation(5, 10, 0.5)) == "-5 -1 -2 -4"
    assert method.progress({}) == 1


def test_a_failed_trial_is_the_worst_until_it_is_replaced() -> None:
    method = make("pbt", **PBT)
    method.start()
    method.on_exit(2, "error")
    method.on_exit(3, "error")
    method.on_validation(0, 10, 0.2)
    assert brief(method.on_validation(1, 10, 0.1)) == "+4<1 4:10 1:20 0:20"  # trial 2 stays in the population
    method.on_validation(4, 10, 0.3)
    method.on_validation(1, 20, 0.1)
    assert brief(method.on_validation(0, 20, 0.2)) == "+5<1 5:10 1:30 0:30 4:20"


def test_new_trials_are_sampled_if_all_fail() -> None:
    method = make("pbt", **{**PBT, "population_size": 2, "replace_function": {"truncate_fraction": 0.5}})
    method.start()
    method.on_exit(0, "error")
    assert brief(method.on_exit(1, "error")) == "+2 2:10"


def test_invalid_hyperparameters_are_replaced_in_place() -> None:
    method = make("pbt", **PBT)
    method.start()
    assert brief(method.on_exit(1, "invalid_hp")) == "+4 4:10"
    for trial in (0, 2, 3):
        method.on_validation(trial, 10, trial)
    assert brief(method.on_validation(4, 10, 0.5)) == "-3 +5<0 5:10 0:20 4:20 2:20"
    assert brief(method.on_exit(5, "invalid_hp")) == "+6<0 6:10"


def test_variations_are_near_their_origin_and_in_range() -> None:
    method = make("pbt", **PBT)
    hparams = [action.hparams for action in method.start() if isinstance(action, Create)]
    for trial in range(3):
        method.on_validation(trial, 10, trial)
    [new] = [action for action in method.on_validation(3, 10, 3) if isinstance(action, Create)]
    ratio = new.hparams["lr"] / hparams[0]["lr"]
    assert math.isclose(ratio, 0.8) or math.isclose(ratio, 1.2) or new.hparams["lr"] == 1


# hyperparameter, value, and the values it may be changed to with a factor of 0.5
SCALED: list[tuple[Any, Any, set[Any]]] = [
    ({"type": "double", "minval": 0, "maxval": 10}, 4.0, {2.0, 6.0}),
    ({"type": "double", "minval": 3, "maxval": 5}, 4.0, {3.0, 5.0}),
    ({"type": "int", "minval": 0, "maxval": 10}, 3, {1, 5}),  # rounded away from the value, so that small values change
    ({"type": "int", "minval": 2, "maxval": 4}, 3, {2, 4}),
    ({"type": "log", "base": 10, "minval": -2, "maxval": 0}, 0.1, {0.05, 0.15000000000000002}),
    ({"type": "log", "base": 10, "minval": -2, "maxval": 0}, 0.8, {0.4, 1.0}),
    ({"type": "log", "base": 0.5, "minval": 0, "maxval": 2}, 0.3, {0.25, 0.44999999999999996}),
    ({"type": "categorical", "vals": ["a", "b"]}, "a", {"a"}),
    (3, 3, {3}),
]


@pytest.mark.parametrize(("hyperparameter", "value", "expected"), SCALED, ids=str)
def test_perturbed_values_stay_in_range(hyperparameter: Any, value: Any, expected: set[Any]) -> None:
    rng = random.Random(0)
    options = {"resample_probability": 0.0, "perturb_factor": 0.5}
    found = {explore_hyperparameters({"x": hyperparameter}, {"x": value}, rng, **options)["x"] for _ in range(50)}
    assert found == expected


def test_resampled_values_cover_the_range() -> None:
    space = {"n": {"x": {"type": "categorical", "vals": list(range(9))}}}
    options = {"resample_probability": 1.0, "perturb_factor": 0.5}
    rng = random.Random(0)
    found = {explore_hyperparameters(space, {"n": {"x": 0}}, rng, **options)["n"]["x"] for _ in range(200)}
    assert found == set(range(9))
