"""Slots that fail, are killed, or ask to leave."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.integration


@pytest.mark.slow
@pytest.mark.parametrize(
    ("style", "data", "ends"),
    [
        ("framework", {"workers": 2}, [("kill", 1, 5), ("leave", 0, 8)]),
        ("user", {"iterable": True}, [("kill", 0, 8), ("leave", 1, 10)]),
    ],
)
def test_killed_or_asked_to_leave_and_resumed_two_slots_end_the_same_to_the_last_bit(
    style: str,
    data: dict[str, Any],
    ends: list[tuple[str, int, int]],
    make_job: Callable[..., Any],
    bits: Callable[[Any], Any],
) -> None:
    keys = {
        "data": {"dropout": True, **data},
        "optimizations": {"aggregation_frequency": 2},
        "records_per_epoch": 48,
    }
    undisturbed, disturbed = make_job(style, **keys).succeed(2), make_job(style, **keys)
    for how, rank, batch in ends:
        code = disturbed.run(2, FAIL=f"{rank} {batch}", HOW=how)
        assert (code == 0) == (how == "leave"), disturbed.output()
        assert batch - 4 < disturbed.checkpoints()[-1].steps_completed < 14
    disturbed.succeed(2)
    assert "rank 1 has the callback of rank 1" in disturbed.output()
    assert bits(disturbed.state()) == bits(undisturbed.state())
    for group in ("training", "validation"):
        assert bits(disturbed.metrics(group)) == bits(undisturbed.metrics(group))
    (other,) = disturbed.state()["slots"]
    assert bits(other["rng_state"]) != bits(disturbed.state()["rng_state"]), "no two slots drop out the same units"


def test_a_slot_that_raises_ends_the_trial(make_job: Callable[..., Any]) -> None:
    job, start = make_job("user"), time.monotonic()
    assert job.run(2, FAIL="1 5", HOW="raise") != 0
    assert time.monotonic() - start < 30
    assert "ArithmeticError: rank 1 fails on purpose" in job.output()


def test_a_stop_requested_on_any_slot_stops_all(make_job: Callable[..., Any]) -> None:
    job = make_job("user").succeed(2, FAIL="1 5", HOW="stop")
    assert job.checkpoints()[-1].steps_completed == 6
    assert "the trial asked to stop after 6 batches" in job.output()


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_another_number_of_slots_continues(before: int, after: int, make_job: Callable[..., Any]) -> None:
    job = make_job("user")
    assert job.run(before, FAIL="0 8", HOW="kill") != 0
    job.succeed(after)
    assert job.checkpoints()[-1].steps_completed == 14
    assert f"the checkpoint is of {before} slots and continues on {after}" in job.output()
    assert [steps for steps, *_ in job.metrics("training")] == [3, 4, 6, 7, 8, 9, 12, 14]
