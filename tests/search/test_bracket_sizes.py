"""Brackets, rungs and trials of asynchronous halving, calculated by hand."""

from __future__ import annotations

from typing import Any

import pytest

from det_core.interfaces.search_method import Create
from det_core.search._bracket_sizes import starting_trials_per_bracket
from det_core.search.asha import AsyncHalvingSearch

from .playing import make

Rows = list[tuple[list[int], int]]

# max_length, max_trials, other options, and the lengths and trials of each bracket.
# "2 over" are 2 trials that rounding down leaves. They go to the first bracket.
ADAPTIVE: list[tuple[int, int, dict[str, Any], Rows]] = [
    # log4(1000) + 1 = 5.98, log4(64) + 1 = 4 rungs; weights 64/4, 16/3, 4/2 of 23.33: 43.9, 14.6, 5.5 and 2 over
    (1000, 64, {}, [([15, 62, 250, 1000], 45), ([62, 250, 1000], 14), ([250, 1000], 5)]),
    (1000, 64, {"mode": "aggressive"}, [([15, 62, 250, 1000], 64)]),
    # weights 16, 5.33, 2, 1 of 24.33: 42.1, 14.03, 5.3, 2.6 and 1 over
    (
        1000,
        64,
        {"mode": "conservative"},
        [([15, 62, 250, 1000], 43), ([62, 250, 1000], 14), ([250, 1000], 5), ([1000], 2)],
    ),
    # log4(16) + 1 = 3; weights 5.33, 2: 11.6, 4.4 and 1 over
    (100, 16, {}, [([6, 25, 100], 12), ([25, 100], 4)]),
    (1, 100, {}, [([1], 100)]),
    (1000, 1, {}, [([1000], 1)]),
    # weights 9/3, 3/2: 6, 3
    (9, 9, {"divisor": 3}, [([1, 3, 9], 6), ([3, 9], 3)]),
    # log10(1000) is 3, but 2.9999999999999996 with logarithms of floats
    (1000, 1000, {"divisor": 10, "mode": "aggressive"}, [([1, 10, 100, 1000], 1000)]),
    (243, 243, {"divisor": 3, "mode": "aggressive", "max_rungs": 6}, [([1, 3, 9, 27, 81, 243], 243)]),
    # weights 81/5, 27/4, 9/3 of 25.95: 151.7, 63.2, 28.1 and 1 over
    (243, 243, {"divisor": 3}, [([3, 9, 27, 81, 243], 152), ([9, 27, 81, 243], 63), ([27, 81, 243], 28)]),
    # weights 4/3, 2/2, 1/1 of 3.33: 1.6, 1.2, 1.2 and 1 over
    (8, 4, {"divisor": 2, "mode": "conservative"}, [([2, 4, 8], 2), ([4, 8], 1), ([8], 1)]),
    (100, 10, {"divisor": 2.5, "mode": "aggressive"}, [([16, 40, 100], 10)]),
    # weights 4/2, 1: 42.7, 21.3 and 1 over
    (1000, 64, {"max_rungs": 2}, [([250, 1000], 43), ([1000], 21)]),
    (1000, 64, {"max_rungs": 1}, [([1000], 64)]),
    (3, 64, {}, [([3], 64)]),
    # weights 64/4, 4/2: 17.8, 2.2 and 1 over
    (64, 20, {"bracket_rungs": [2, 4]}, [([1, 4, 16, 64], 18), ([16, 64], 2)]),
    # more brackets than trials: one each for the first
    (
        1024,
        3,
        {"bracket_rungs": [1, 2, 3, 4, 5]},
        [([4, 16, 64, 256, 1024], 1), ([16, 64, 256, 1024], 1), ([64, 256, 1024], 1)],
    ),
    # 4.07, 1.3, 0.4, 0.2, 0.1: at least 1 each are 8, so 2 too many
    (
        1024,
        6,
        {"bracket_rungs": [1, 2, 3, 4, 5]},
        [([4, 16, 64, 256, 1024], 2), ([16, 64, 256, 1024], 1), ([64, 256, 1024], 1), ([256, 1024], 1), ([1024], 1)],
    ),
]
# num_rungs, max_length, divisor; the lengths.
HALVING = [
    (3, 16, 4, [1, 4, 16]),
    (5, 1000, 4, [3, 15, 62, 250, 1000]),
    (1, 50, 4, [50]),
    (2, 7, 3, [2, 7]),
    (4, 100, 1.5, [29, 44, 66, 100]),
    # 10/256, 10/64 and 10/16 are below 1: one rung for all three
    (5, 10, 4, [1, 2, 10]),
    (6, 3, 2, [1, 3]),
]


def rows(name: str, **options: Any) -> Rows:
    method = make(name, **options)
    assert isinstance(method, AsyncHalvingSearch)
    return [([rung.length for rung in bracket.rungs], bracket.trials) for bracket in method.brackets]


@pytest.mark.parametrize(("max_length", "max_trials", "options", "expected"), ADAPTIVE)
def test_an_adaptive_search_has_the_expected_brackets(
    max_length: int, max_trials: int, options: dict[str, Any], expected: Rows
) -> None:
    assert rows("adaptive_asha", max_length=max_length, max_trials=max_trials, **options) == expected
    assert sum(trials for _, trials in expected) == max_trials


@pytest.mark.parametrize(("num_rungs", "max_length", "divisor", "expected"), HALVING)
def test_a_bracket_has_the_expected_rungs(num_rungs: int, max_length: int, divisor: float, expected: list[int]) -> None:
    options = {"num_rungs": num_rungs, "max_length": max_length, "divisor": divisor, "max_trials": 9}
    assert rows("async_halving", **options) == [(expected, 9)]


# budget, num_rungs, max_length; trials: with lengths 1 and 4, n trials take n + 3 * floor(n / 4).
BUDGETS = [(16, 2, 4, 10), (15, 2, 4, 9), (14, 2, 4, 8), (13, 2, 4, 7), (3, 2, 4, 3), (1, 1, 10, 1), (39, 1, 10, 3)]


@pytest.mark.parametrize(("budget", "num_rungs", "max_length", "trials"), BUDGETS)
def test_a_budget_determines_the_number_of_trials(budget: int, num_rungs: int, max_length: int, trials: int) -> None:
    [(_, found)] = rows("async_halving", budget=budget, num_rungs=num_rungs, max_length=max_length)
    assert found == trials


# max_concurrent_trials, trials of each bracket, start without a limit; how many each starts with
SHARES = [
    (16, [45, 14, 5], 5, [6, 5, 5]),
    (2, [45, 14, 5], 5, [1, 1, 0]),
    (0, [45, 14, 3], 4, [4, 4, 3]),
]


@pytest.mark.parametrize(("at_once", "trials", "unlimited", "expected"), SHARES)
def test_slots_are_shared_evenly(at_once: int, trials: list[int], unlimited: int, expected: list[int]) -> None:
    assert starting_trials_per_bracket(at_once, trials, unlimited) == expected


# name, options; how many trials each bracket starts with if max_concurrent_trials is 0
UNLIMITED: list[tuple[str, dict[str, Any], list[int]]] = [
    ("async_halving", {"num_rungs": 3, "max_length": 16, "max_trials": 100}, [16]),
    ("async_halving", {"num_rungs": 3, "max_length": 16, "max_trials": 9}, [9]),
    ("adaptive_asha", {"max_length": 1000, "max_trials": 64}, [5, 5, 5]),
    ("adaptive_asha", {"max_length": 1000, "max_trials": 64, "mode": "conservative"}, [4, 4, 4, 2]),
    ("adaptive_asha", {"max_length": 9, "max_trials": 9, "divisor": 3}, [3, 3]),
    ("adaptive_asha", {"max_length": 1000, "max_trials": 64, "mode": "aggressive"}, [64]),
]


@pytest.mark.parametrize(("name", "options", "expected"), UNLIMITED)
def test_without_a_limit_brackets_start_with_enough_trials(
    name: str, options: dict[str, Any], expected: list[int]
) -> None:
    method = make(name, max_concurrent_trials=0, **options)
    assert isinstance(method, AsyncHalvingSearch)
    assert sum(isinstance(action, Create) for action in method.start()) == sum(expected)
    assert [bracket.trials - bracket.left for bracket in method.brackets] == expected
