"""Rules on the number of slots of an elastic trial."""

from __future__ import annotations

import math

import pytest

from det_core.runner import _elastic_slots
from det_core.runner._elastic_slots import ElasticSlots, choose_slot_count

COUNTS = (4, 2, 1)


@pytest.mark.parametrize(
    ("current", "available", "seconds", "expected"),
    [
        (4, 3, 59, 4),
        (4, 3, 60, 2),
        (4, 2, 60, 2),
        (4, 1, 60, 1),
        (4, 0, math.inf, 4),
        (4, 4, 119, 4),
        (4, 4, 120, 2),
        (4, None, 59, 4),
        (4, None, 60, 2),
        (2, None, 60, 1),
        (2, 1, 60, 1),
        (1, None, math.inf, 1),
        (1, 0, math.inf, 1),
    ],
)
def test_a_trial_that_waits_takes_what_is_left(
    current: int, available: int | None, seconds: float, expected: int
) -> None:
    chosen = choose_slot_count(COUNTS, current, available, is_running=False, seconds=seconds, timeout=60)
    assert chosen == expected


@pytest.mark.parametrize(
    ("current", "available", "seconds", "expected"),
    [
        (1, 1, 59, 1),
        (1, 1, 60, 2),
        (1, 2, 60, 2),
        (1, 3, 60, 4),
        (2, 1, 60, 2),
        (2, 2, 60, 4),
        (2, 0, math.inf, 2),
        (2, None, math.inf, 2),
        (4, 4, math.inf, 4),
    ],
)
def test_a_trial_that_runs_takes_more(current: int, available: int | None, seconds: float, expected: int) -> None:
    chosen = choose_slot_count(COUNTS, current, available, is_running=True, seconds=seconds, timeout=60)
    assert chosen == expected


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(_elastic_slots, "time", clock)
    return clock


def changes_after(slots: ElasticSlots, clock: Clock, available: int | None, *, is_running: bool) -> float:
    """Return the seconds until the number needs a change, asked every second for ten minutes."""
    began = clock.now
    while clock.now < began + 600:
        if slots.needs_change(lambda: available, is_running=is_running):
            return clock.now - began
        clock.now += 1
    return math.inf


def test_a_trial_shrinks_and_grows_after_the_timeout(clock: Clock) -> None:
    slots = ElasticSlots(COUNTS, 60)
    slots.begin_run(lambda: 4)
    assert slots.count == 4
    assert changes_after(slots, clock, 0, is_running=True) == math.inf
    slots.begin_run(lambda: 2)
    assert slots.count == 4, "a replacement may come"
    assert changes_after(slots, clock, 2, is_running=False) == 60
    assert not slots.needs_change(lambda: 2, is_running=False), "it asks once"
    assert slots.change()
    assert slots.count == 2
    assert changes_after(slots, clock, 1, is_running=True) == math.inf
    assert 55 <= changes_after(slots, clock, 2, is_running=True) <= 65, "since the last look without them"
    slots.begin_run(lambda: 3)
    assert slots.count == 2, "another trial took one of them meanwhile"
    slots.begin_run(lambda: 4)
    assert slots.count == 4


def test_slots_that_are_free_for_a_short_time_change_nothing(clock: Clock) -> None:
    slots = ElasticSlots(COUNTS, 60)
    slots.begin_run(lambda: 0)
    slots.count = slots._next = 2
    for _ in range(10):
        for free in (2, 0):
            for _ in range(50):
                assert not slots.needs_change(lambda free=free: free, is_running=True)  # type: ignore[misc]
                clock.now += 1


def test_slots_that_nobody_gets_are_tried_more_and_more_rarely(clock: Clock) -> None:
    """Slots of an engine may seem to be free, although it gives them to others."""
    slots = ElasticSlots(COUNTS, 60)
    slots.begin_run(lambda: 2)
    assert changes_after(slots, clock, 2, is_running=False) == 60
    slots.change()
    for expected in (60, 120, 240):
        assert expected - 5 <= changes_after(slots, clock, 2, is_running=True) <= expected + 5
        slots.begin_run(lambda: 4)
        assert changes_after(slots, clock, 2, is_running=False) == 60
        assert slots.change()
    slots.begin_run(lambda: 4)
    assert changes_after(slots, clock, 0, is_running=True) == math.inf, "it has got them"
    slots.begin_run(lambda: 2)
    assert changes_after(slots, clock, 2, is_running=False) == 60
    assert slots.change()
    assert 55 <= changes_after(slots, clock, 2, is_running=True) <= 65


def test_a_launcher_that_does_not_know_what_is_free_is_tried_in_steps(clock: Clock) -> None:
    slots = ElasticSlots(COUNTS, 60)
    for expected in (2, 1):
        assert changes_after(slots, clock, None, is_running=False) == 60
        assert slots.change()
        assert slots.count == expected
    assert changes_after(slots, clock, None, is_running=False) == math.inf
    slots.begin_run(lambda: None)
    assert slots.count == 4


def test_numbers_that_the_launcher_refuses_are_passed_over() -> None:
    slots = ElasticSlots(COUNTS, 60)
    assert [slots.refuse() for _ in COUNTS] == [True, True, False]
    assert slots.count == 1


def test_other_trials_never_ask(clock: Clock) -> None:
    slots = ElasticSlots((4,), 60)
    slots.begin_run(lambda: pytest.fail("it asks"))
    for is_running in (False, True):
        clock.now += 1000
        assert not slots.needs_change(lambda: pytest.fail("it asks"), is_running=is_running)
    assert not slots.refuse()
