"""Curves that are read in full once a minute and extended in between."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

import pytest
from det_server import _curve_cache
from det_server._curve_cache import FRESH_SECONDS, CurveCache

from det_core.interfaces.records import MetricsReport
from det_core.interfaces.tracking import TrackingStore

from .serving import LIMIT

pytestmark = pytest.mark.unit


@pytest.fixture
def trial(store: TrackingStore) -> int:
    trial_id = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=1).id
    store.start_run(trial_id, allocation_id="a")
    return trial_id


def report(store: TrackingStore, trial: int, steps: Iterable[int], *, run: int = 1, scale: float = 1.0) -> None:
    which = {"trial_id": trial, "run_id": run, "group": "training"}
    store.report_metrics(
        [MetricsReport(**which, steps_completed=step, metrics={"loss": scale * (step % 7)}) for step in steps]
    )


def curve(cache: CurveCache, trial: int, points: int = 1000) -> list[tuple[int, float]]:
    return list(cache.read([trial], "loss", group="training", points=points)[trial])


def expected(steps: Iterable[int], scale: float = 1.0) -> list[tuple[int, float]]:
    return [(step, scale * (step % 7)) for step in steps]


def test_new_points_extend_a_curve_without_reading_the_others(store: TrackingStore, trial: int) -> None:
    cache = CurveCache(store)
    assert curve(cache, trial) == []
    report(store, trial, range(50))
    assert curve(cache, trial) == expected(range(50))
    report(store, trial, range(50, 60))
    with patch.object(store, "curves", wraps=store.curves) as read:
        assert curve(cache, trial) == expected(range(60))
    assert [call.args[0] for call in read.call_args_list if "after" not in call.kwargs] == [[]]
    assert [call.kwargs["after"] for call in read.call_args_list if "after" in call.kwargs] == [49]


def test_curves_of_trials_that_are_apart_have_each_point_once(store: TrackingStore, trial: int) -> None:
    other = store.create_trial(store.trial(trial).experiment_id, hparams={}, seed=1).id
    store.start_run(other, allocation_id="b")
    report(store, trial, range(10))
    report(store, other, range(100))
    cache = CurveCache(store)
    for _ in range(2):
        found = cache.read([other, trial], "loss", group="training", points=1000)
        assert list(found) == [other, trial]
        assert list(found[other]) == expected(range(100))
        assert list(found[trial]) == expected(range(10))


def test_a_new_run_begins_a_new_curve(store: TrackingStore, trial: int) -> None:
    cache = CurveCache(store)
    report(store, trial, range(20))
    curve(cache, trial)
    run = store.start_run(trial, allocation_id="b").run_id
    report(store, trial, range(5), run=run, scale=2.0)
    assert curve(cache, trial) == expected(range(5), 2.0)


def test_reports_of_earlier_steps_are_there_after_a_minute(store: TrackingStore, trial: int) -> None:
    now = 0.0
    cache = CurveCache(store, clock=lambda: now)
    report(store, trial, range(10, 20))
    curve(cache, trial)
    report(store, trial, range(10))
    now = FRESH_SECONDS - 1
    assert curve(cache, trial) == expected(range(10, 20))
    now = FRESH_SECONDS + 1
    assert curve(cache, trial) == expected(range(20))


@pytest.mark.integration
def test_a_curve_that_grows_is_thinned_again(store: TrackingStore, trial: int) -> None:
    cache = CurveCache(store)
    for begin in range(0, 500, 20):
        report(store, trial, range(begin, begin + 20))
        found = curve(cache, trial, points=10)
        assert len(found) <= 4 * 10
        assert found[0] == (0, 0.0) and found[-1][0] == begin + 19
        assert {0.0, 6.0} <= {value for _, value in found}


def test_values_that_are_no_numbers_stay_when_a_curve_is_thinned(store: TrackingStore, trial: int) -> None:
    cache = CurveCache(store)
    report(store, trial, range(10))
    curve(cache, trial, points=10)
    report(store, trial, range(10, 50), scale=math.nan)
    report(store, trial, range(50, 60), scale=math.inf)
    found = curve(cache, trial, points=10)
    assert len(found) <= 4 * 10
    assert {"0.0", "6.0", "nan", "inf"} <= {str(value) for _, value in found}


def test_others_see_what_is_there_while_a_curve_is_read_in_full(store: TrackingStore, trial: int) -> None:
    now = 0.0
    cache = CurveCache(store, clock=lambda: now)
    report(store, trial, range(10, 20))
    curve(cache, trial)
    report(store, trial, range(10))
    now = FRESH_SECONDS + 1
    read, seen = store.curves, []

    def read_slowly(*args: Any, **kwargs: Any) -> Any:
        if args[0] == [trial] and "after" not in kwargs:
            thread = threading.Thread(target=lambda: seen.append(curve(cache, trial)))
            thread.start()
            thread.join(LIMIT)
        return read(*args, **kwargs)

    with patch.object(store, "curves", read_slowly):
        assert curve(cache, trial) == expected(range(20))
    assert seen == [expected(range(10, 20))]


def test_only_the_latest_curves_are_kept(store: TrackingStore, trial: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_curve_cache, "_CURVES", 2)
    cache = CurveCache(store)
    report(store, trial, range(10))
    for points in (10, 20, 30):
        curve(cache, trial, points)
    with patch.object(store, "curves", wraps=store.curves) as read:
        curve(cache, trial, 20)
        curve(cache, trial, 10)
    assert [call.args[0] for call in read.call_args_list if "after" not in call.kwargs] == [[], [trial]]


def test_unknown_trials_are_left_out(store: TrackingStore, trial: int) -> None:
    assert list(CurveCache(store).read([trial, trial + 1], "loss", group="training", points=10)) == [trial]


@pytest.mark.integration
def test_a_slow_curve_delays_only_those_who_ask_for_the_same(store: TrackingStore, trial: int) -> None:
    report(store, trial, range(10))
    cache, began, go_on, read = CurveCache(store), threading.Event(), threading.Event(), store.curves

    def read_slowly(*args: Any, **options: Any) -> Any:
        if options["metric"] == "slow":
            began.set()
            assert go_on.wait(LIMIT)
        return read(*args, **options)

    def read_others() -> None:
        for number in range(64):
            cache.read([trial], f"loss {number}", group="training", points=10)

    slow = threading.Thread(target=cache.read, args=([trial], "slow"), kwargs={"group": "training", "points": 10})
    others = threading.Thread(target=read_others)
    with patch.object(store, "curves", read_slowly):
        slow.start()
        assert began.wait(LIMIT)
        others.start()
        others.join(LIMIT)
        waits = others.is_alive()
        go_on.set()
        slow.join(LIMIT)
        others.join(LIMIT)
    assert not waits
