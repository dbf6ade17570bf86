"""Promotions on recorded results with divisor 2 and rungs at 1, 2 and 4, calculated by hand."""

from __future__ import annotations

from typing import Any

import pytest

from det_core.errors import ConfigError
from det_core.interfaces.search_method import Create, SearchMethod

from .playing import brief, make

HALVING: dict[str, Any] = {"num_rungs": 3, "max_length": 4, "divisor": 2, "max_trials": 6, "max_concurrent_trials": 2}

# trial, length, metric or reason of its exit, and the actions that follow
Story = list[tuple[int, int, float | str, str]]

PROMOTIONS: Story = [
    (0, 1, 0.5, "+2 2:1"),  # the best 0 of 1
    (1, 1, 0.4, "1:2"),  # the best 1 of 2
    (2, 1, 0.6, "+3 3:1"),
    (1, 2, 0.45, "+4 4:1"),
    (3, 1, 0.3, "3:2"),  # the best 2 of 4
    (4, 1, 0.7, "+5 5:1"),
    (3, 2, 0.2, "3:4"),  # the best 1 of 2 on the second rung
    (5, 1, 0.35, "5:2 -0 -2 -4"),  # the best 3 of 6; that rung gets no more results
    (3, 4, 0.1, "-3"),
    (5, 2, 0.5, "-1 -5"),
]
DISPLACED: Story = [
    (0, 1, 0.5, "+2 2:1"),
    (1, 1, 0.4, "1:2"),
    (2, 1, 0.3, "2:2"),  # the best 1 of 3, which was trial 1 before
    (1, 2, 0.1, "+3 3:1"),
    (2, 2, 0.2, "1:4"),
]
FAILURES: Story = [
    (0, 1, "error", "+2 2:1"),
    (1, 1, "stopped", "+3 3:1"),  # trial 0 is the best of two failures, fails the second rung likewise
    (2, 1, 0.5, "2:2"),
    (3, 1, 0.6, "3:2"),
    (2, 2, 0.5, "2:4"),
    (3, 2, 0.4, "3:4"),  # the best of 3 results, one of which is a failure
]
INVALID: Story = [
    (0, 1, 0.5, "+2 2:1"),
    (1, 1, 0.4, "1:2"),
    (1, 2, "invalid_hp", "+3 3:1"),  # also removed from the first rung, and replaced
    (2, 1, 0.6, "0:2"),  # so trial 0 is the best of 2
    (3, 1, "invalid_hp", "+4 4:1"),
]
# max_trials 4, one at a time
STOPPED: Story = [
    (0, 1, 0.5, "0:2"),  # the first result is always promoted
    (0, 2, 0.5, "0:4"),
    (0, 4, 0.5, "+1 1:1 -0"),
    (1, 1, 0.6, "+2 2:1 -1"),  # not the best 1 of 2
    (2, 1, 0.4, "2:2"),
    (2, 2, 0.7, "+3 3:1 -2"),
    (3, 1, 0.45, "3:2"),  # of the best 2 of 4
    (3, 2, 0.6, "-3"),  # not the best 1 of 3
]
# max_trials 6, one at a time
EQUAL: Story = [
    (0, 1, 0.5, "0:2"),
    (0, 2, 0.5, "0:4"),
    (0, 4, 0.5, "+1 1:1 -0"),
    (1, 1, 0.5, "1:2"),  # ranks before the equal result of trial 0, so it is the best 1 of 2
    (1, 2, 0.5, "1:4"),
    (1, 4, 0.5, "+2 2:1 -1"),
    (2, 1, "error", "+3 3:1"),
    (3, 1, "error", "+4 4:1"),  # ranks before trial 2, but is not promoted
    (4, 1, 0.6, "+5 5:1 -4"),  # third, so not among the best 2 of 5
    (5, 1, 0.5, "5:2"),
    (5, 2, 0.6, "-5"),  # third of 3, because the failures count on the first rung only
]
STORIES: dict[str, tuple[dict[str, Any], str, Story]] = {
    "promotions": ({}, "+0 0:1 +1 1:1", PROMOTIONS),
    "displaced": ({}, "+0 0:1 +1 1:1", DISPLACED),
    "failures": ({}, "+0 0:1 +1 1:1", FAILURES),
    "invalid": ({}, "+0 0:1 +1 1:1", INVALID),
    "stop_once": ({"stop_once": True, "max_trials": 4, "max_concurrent_trials": 1}, "+0 0:1", STOPPED),
    "stop_once_equal": ({"stop_once": True, "max_concurrent_trials": 1}, "+0 0:1", EQUAL),
}


def tell(method: SearchMethod, trial: int, length: int, outcome: float | str) -> str:
    if isinstance(outcome, str):
        return brief(method.on_exit(trial, outcome))
    return brief(method.on_validation(trial, length, outcome))


@pytest.mark.parametrize(("options", "start", "story"), STORIES.values(), ids=STORIES)
def test_the_actions_follow_from_recorded_results(options: dict[str, Any], start: str, story: Story) -> None:
    method = make("async_halving", **{**HALVING, **options})
    assert brief(method.start()) == start
    for trial, length, outcome, actions in story:
        assert tell(method, trial, length, outcome) == actions, (trial, length, outcome)


def test_equal_results_are_promoted_in_the_order_of_their_reports() -> None:
    method = make("async_halving", **{**HALVING, "max_concurrent_trials": 4})
    method.start()
    assert [tell(method, trial, 1, 0.5) for trial in (2, 0, 3, 1)] == ["+4 4:1", "2:2", "+5 5:1", "0:2"]


def test_a_trial_that_is_killed_while_it_waits_fails_when_it_is_promoted() -> None:
    method = make("async_halving", **HALVING)
    method.start()
    tell(method, 0, 1, 0.1)
    assert tell(method, 0, 1, "error") == ""
    assert tell(method, 1, 1, 0.2) == "+3 3:1"  # trial 0 would have been promoted
    assert tell(method, 2, 1, 0.9) == "+4 4:1"
    assert tell(method, 3, 1, 0.15) == "3:2"


def test_slots_that_a_bracket_cannot_use_go_to_the_others() -> None:
    method = make("adaptive_asha", max_length=100, max_trials=16, max_concurrent_trials=1)
    assert brief(method.start()) == "+0 0:6"
    lengths = [tell(method, trial, 6, 1 - trial / 100) for trial in range(3)]
    assert lengths == ["+1 1:6", "+2 2:6", "+3 3:6"]
    assert tell(method, 3, 6, 0.1) == "3:25"


def test_brackets_start_side_by_side() -> None:
    method = make("adaptive_asha", max_length=100, max_trials=16, max_concurrent_trials=5)
    assert brief(method.start()) == "+0 0:6 +1 1:6 +2 2:6 +3 3:25 +4 4:25"


def test_slots_that_a_small_bracket_cannot_start_with_go_to_the_first_bracket() -> None:
    method = make("adaptive_asha", mode="conservative", max_length=100, max_trials=16, max_concurrent_trials=6)
    assert brief(method.start()) == "+0 0:6 +1 1:6 +2 2:25 +3 3:25 +4 4:100 +5 5:6"


def test_hyperparameters_depend_on_the_trials_number_only() -> None:
    def created(order: list[int]) -> list[Any]:
        method = make("async_halving", **{**HALVING, "max_concurrent_trials": 4})
        actions = [*method.start()]
        for trial in order:
            actions += method.on_validation(trial, 1, trial / 10)
        return [action.hparams for action in actions if isinstance(action, Create)]

    first, second = created([0, 1, 2, 3]), created([3, 2, 1, 0])
    common = min(len(first), len(second))
    assert first[:common] == second[:common] and common > 4
    assert len({str(hparams) for hparams in first}) == len(first)


# options, and the option that is refused
TOO_MUCH = [
    ({"num_rungs": 10**9}, "num_rungs: got 1000000000; expected 100 or less"),
    ({"divisor": 1e300}, "divisor: got 1e.300; expected 1000"),
    ({"max_length": 2**63}, r"max_length: got 9223372036854775808; expected a length below 2 \*\* 63"),
]


@pytest.mark.parametrize(("options", "words"), TOO_MUCH, ids=lambda value: str(value)[:40])
def test_numbers_that_no_search_can_have_are_refused_with_the_config(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=rf"searcher\.{words}"):
        make("async_halving", **{**HALVING, **options})


def test_a_search_starts_with_the_greatest_numbers() -> None:
    greatest = {"divisor": 1000, "max_length": 2**63 - 1, "max_trials": 2**62, "max_concurrent_trials": 1}
    for name, options in (("async_halving", {"num_rungs": 100}), ("adaptive_asha", {"bracket_rungs": [100, 1]})):
        assert brief(make(name, **options, **greatest).start()) == "+0 0:1"
