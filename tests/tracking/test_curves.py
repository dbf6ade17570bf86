"""Points of the curves of metrics, of which long curves keep only some."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from operator import itemgetter
from typing import Any

import pytest

from det_core.errors import CallTooLarge, RecordNotFound
from det_core.interfaces.records import MAX_STEPS, MetricsReport, MetricValues
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import _curves
from det_core.tracking._column_types import finite_or_none

NO_POINTS = (
    float("nan"),
    float("inf"),
    -float("inf"),
    None,
    True,
    "0.1",
    "NaN",
    10**400,
    -(10**400),
    [1.0],
    {"loss": 1},
)


@pytest.fixture
def experiment(store: TrackingStore) -> int:
    return store.create_experiment(config={}).id


def trial_with(
    store: TrackingStore, experiment: int, reports: Mapping[int, Mapping[str, Any]], group: str = "training"
) -> int:
    """Return the id of a new trial with these metrics by step."""
    trial = store.create_trial(experiment, hparams={}, seed=0).id
    run = store.start_run(trial, allocation_id="a").run_id
    store.report_metrics(
        [
            MetricsReport(trial_id=trial, run_id=run, group=group, steps_completed=step, metrics=metrics)
            for step, metrics in reports.items()
        ]
    )
    return trial


def losses(values: Mapping[int, Any]) -> dict[int, dict[str, Any]]:
    return {step: {"loss": value} for step, value in values.items()}


def thinned(curve: list[tuple[int, float]], stride: int) -> list[tuple[int, float]]:
    """Return the first point, then always the next one at least ``stride`` steps later, and the last one."""
    kept = curve[:1]
    for point in curve:
        if point[0] >= kept[-1][0] + stride:
            kept.append(point)
    return kept if not curve or kept[-1] == curve[-1] else [*kept, curve[-1]]


@pytest.mark.parametrize("metric", ["loss", 'a "quoted" name'])
def test_a_metric_has_diverged_since_the_first_report_after_its_last_number(
    store: TrackingStore, experiment: int, metric: str
) -> None:
    nan, inf = float("nan"), float("inf")
    curves: list[tuple[Mapping[int, Any], Any]] = [
        ({10: 1.0, 20: nan, 30: inf}, (20, nan)),
        ({10: 1.0, 20: nan, 30: 2, 40: -inf}, (40, -inf)),
        ({10: nan, 20: nan}, (10, nan)),
        ({10: 1.0, 20: nan, 30: 2.0}, None),
        ({10: 1.0, 20: "diverged", 30: None}, None),
        ({}, None),
    ]
    trials = [
        trial_with(store, experiment, {step: {metric: value, "other": nan} for step, value in values.items()})
        for values, _ in curves
    ]
    store.report_metrics(
        [
            MetricsReport(trial_id=trial, run_id=1, group=group, steps_completed=50, metrics={name: 0.5})
            for trial in trials
            for group, name in (("training", "else"), ("validation", metric))
        ]
    )
    found = store.divergences([*trials, 999], metric, group="training")
    assert repr(found) == repr({trial: since for trial, (_, since) in zip(trials, curves, strict=True) if since})
    assert store.divergences(trials, metric, group="validation") == {}


def test_numbers_are_read_with_all_digits(store: TrackingStore, experiment: int) -> None:
    exact = [0.9944037315609771, 0.38140149197566797, 5e-324, 1.7976931348623157e308, -1e-100, 2**53 + 1]
    trial = trial_with(store, experiment, losses(dict(enumerate(exact))))
    assert store.curves([trial], "loss", group="training")[trial] == list(enumerate(map(float, exact)))


@pytest.mark.parametrize("points", [20, 1, 499, 500])
@pytest.mark.parametrize("interval", [1, 7, pytest.param(600, id="absent")])
def test_the_points_of_long_curves_are_spread_evenly(
    store: TrackingStore, experiment: int, points: int, interval: int
) -> None:
    """The metric is in every report, in every seventh, or in none, among reports of another group."""
    reports = {10 * n: {"loss": n / 7} if n % interval == interval - 1 else {"other": 1.0} for n in range(500)}
    trial = trial_with(store, experiment, reports)
    validations = [
        MetricsReport(trial_id=trial, run_id=1, group="validation", steps_completed=10 * n, metrics={"loss": -1})
        for n in range(500)
    ]
    store.report_metrics(validations)
    every = [(step, metrics["loss"]) for step, metrics in reports.items() if "loss" in metrics]
    expected = every if points >= 500 or not every else thinned(every, -(-(4990 - every[0][0]) // points))
    assert store.curves([trial], "loss", group="training", points=points) == {trial: expected}
    assert len(expected) <= points + 1 or points >= 500


@pytest.mark.parametrize("points", [5, 1000], ids=["sampled", "whole"])
def test_values_that_are_not_finite_numbers_are_omitted(store: TrackingStore, experiment: int, points: int) -> None:
    values = {step: NO_POINTS[step % len(NO_POINTS)] if step % 2 else step for step in range(44)}
    trial = trial_with(store, experiment, losses(values))
    every = [(step, float(step)) for step in range(0, 44, 2)]
    (curve,) = store.curves([trial], "loss", group="training", points=points).values()
    assert curve == (every if points == 1000 else thinned(every, 9))
    assert {type(value) for _, value in curve} == {float}


def test_the_last_point_is_the_last_one_with_the_metric(store: TrackingStore, experiment: int) -> None:
    trial = trial_with(store, experiment, losses({step: None if step > 90 else step for step in range(100)}))
    (curve,) = store.curves([trial], "loss", group="training", points=10).values()
    assert curve == [(step, float(step)) for step in range(0, 100, 10)]
    (curve,) = store.curves([trial], "loss", group="training", points=3).values()
    assert curve == [(0, 0.0), (33, 33.0), (66, 66.0), (90, 90.0)]


@pytest.mark.parametrize("extremes", [False, True])
def test_a_metric_of_the_last_report_alone_is_a_curve(store: TrackingStore, experiment: int, extremes: bool) -> None:
    """A script reports its final accuracy once, after many losses."""
    trial = trial_with(store, experiment, {**losses(dict.fromkeys(range(20), 1.0)), 20: {"accuracy": 0.9}})
    curves = store.curves([trial], "accuracy", group="training", points=10, extremes=extremes)
    assert curves == {trial: [(20, 0.9)]}


@pytest.mark.parametrize("name", ["loss", "val/loss", 'a."b\\c', "é", "$", "loss'"])
def test_curves_of_many_trials_are_returned_in_the_requested_order(
    store: TrackingStore, experiment: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Curves may be short, long or empty, or lack the metric or the group, and take several queries."""
    monkeypatch.setattr(_curves, "_AT_ONCE", 3)
    elsewhere = trial_with(store, store.create_experiment(config={}).id, {1: {name: 5}})
    steps = {
        trial_with(store, experiment, {n: {name: 0.1 * n} for n in range(size)}): size for size in (1, 200, 10, 9, 30)
    }
    lacking = [
        trial_with(store, experiment, {n: {"other": 1} for n in range(30)}),
        trial_with(store, experiment, {n: {name: 1} for n in range(30)}, group="validation"),
        trial_with(store, experiment, {}),
    ]
    asked = [elsewhere, *lacking, *steps]
    random.Random(0).shuffle(asked)
    curves = store.curves(asked, name, group="training", points=10)
    assert list(curves) == asked
    assert [curves[trial] for trial in lacking] == [[], [], []]
    assert curves[elsewhere] == [(1, 5.0)]
    for trial, size in steps.items():
        every = [(n, 0.1 * n) for n in range(size)]
        assert curves[trial] == (thinned(every, -(-(size - 1) // 10)) if size > 10 else every)


def extremes(curve: list[tuple[int, float]], points: int) -> list[tuple[int, float]]:
    """Return the first and the last point, and the first least and greatest one of each interval of a whole curve."""
    first, last = curve[0][0], curve[-1][0]
    stride = -(-(last - first) // points)
    intervals: dict[int, list[tuple[int, float]]] = {}
    for point in curve:
        intervals.setdefault((point[0] - first) // stride, []).append(point)
    kept = {curve[0], curve[-1]}
    for interval in intervals.values():
        kept |= {min(interval, key=itemgetter(1)), max(interval, key=itemgetter(1))}
    return sorted(kept)


@pytest.mark.parametrize("points", [7, 1, 499, 500])
@pytest.mark.parametrize("interval", [1, 40], ids=["regular", "irregular"])
def test_extremes_of_long_curves_are_kept(store: TrackingStore, experiment: int, points: int, interval: int) -> None:
    chance = random.Random(f"{points} {interval}")
    every = [(10 + n * interval + chance.randrange(interval), chance.choice((1.5, -2, 3e9, n))) for n in range(500)]
    curve = [(step, float(value)) for step, value in every]
    trial = trial_with(store, experiment, losses(dict(every)))
    found = store.curves([trial], "loss", group="training", points=points, extremes=True)
    assert found == {trial: curve if points >= 500 else extremes(curve, points)}
    assert len(found[trial]) <= 2 * points + 2 or points >= 500
    values = [value for _, value in found[trial]]
    assert (min(values), max(values)) == (min(value for _, value in curve), max(value for _, value in curve))


def test_extremes_are_those_of_the_metric_and_finite(store: TrackingStore, experiment: int) -> None:
    """Rows without the metric, of other groups, and with values that are not finite do not count."""
    values = {step: NO_POINTS[step % len(NO_POINTS)] if step % 2 else -step for step in range(20, 90)}
    reports = {**{key: {"other": 1} for key in range(100)}, **losses(values)}
    trial, short = trial_with(store, experiment, reports), trial_with(store, experiment, losses({1: 5, 2: None}))
    store.report_metrics(
        [MetricsReport(trial_id=trial, run_id=1, group="validation", steps_completed=50, metrics={"loss": 1e9})]
    )
    kept = [*sorted({step for n in range(20, 90, 10) for step in (n, n + 8)})]
    assert store.curves([short, trial], "loss", group="training", points=10, extremes=True) == {
        short: [(1, 5.0)],
        trial: [(step, -float(step)) for step in kept],
    }
    lacking = trial_with(store, experiment, {key: {"other": 1} for key in range(100)})
    assert store.curves([lacking], "loss", group="training", points=10, extremes=True) == {lacking: []}


@pytest.mark.parametrize("kept", [False, True], ids=["sampled", "extremes"])
@pytest.mark.parametrize("points", [5, 100])
def test_only_steps_in_a_range_are_read(store: TrackingStore, experiment: int, points: int, kept: bool) -> None:
    every = {step: (step * 7) % 11 for step in range(0, 200, 2)}
    trial, other = trial_with(store, experiment, losses(every)), trial_with(store, experiment, losses({3: 1.0}))
    for after, until in ((99, MAX_STEPS), (40, 142)):
        within = [(step, float(value)) for step, value in every.items() if after < step <= until]
        found = store.curves(
            [trial, other], "loss", group="training", points=points, extremes=kept, after=after, until=until
        )
        reduced = extremes(within, 5) if kept else thinned(within, 20)
        assert found == {trial: within if points == 100 else reduced, other: []}


def test_steps_may_be_as_large_as_any(store: TrackingStore, experiment: int) -> None:
    """Nobody keeps others from reading a list of experiments by such a step."""
    chance = random.Random(1)
    steps = [*range(12), 2**62, *range(MAX_STEPS - 12, MAX_STEPS + 1)]
    every = [(step, chance.random()) for step in steps]
    trial = trial_with(store, experiment, losses(dict(every)))
    for kept, points, after in product((False, True), (1, 10), (-1, 2**62)):
        curve = [point for point in every if point[0] > after]
        found = store.curves([trial], "loss", group="training", points=points, extremes=kept, after=after)
        stride = -(-(curve[-1][0] - curve[0][0]) // points)
        assert found == {trial: extremes(curve, points) if kept else thinned(curve, stride)}


@pytest.mark.parametrize("kept", [False, True], ids=["sampled", "extremes"])
@pytest.mark.parametrize("points", [4, 100])
def test_values_that_are_nan_or_infinite_are_returned_on_request(
    store: TrackingStore, experiment: int, points: int, kept: bool
) -> None:
    nan, inf = float("nan"), float("inf")
    values = {step: float(step) for step in range(40)} | {3: None, 5: nan, 7: nan, 21: inf, 39: -inf}
    trial = trial_with(store, experiment, losses(values))
    curves = store.curves([trial], "loss", group="training", points=points, extremes=kept, non_finite=True)
    present = {step: value for step, value in values.items() if value is not None}
    if points == 100:
        expected = list(present)
    elif kept:  # intervals of 10 steps
        expected = [0, 5, 9, 10, 19, 20, 21, 29, 30, 38, 39]
    else:
        expected = [0, 10, 20, 30, 39]
    assert repr(curves) == repr({trial: [(step, present[step]) for step in expected]})


def test_archived_metrics_are_omitted(store: TrackingStore, experiment: int) -> None:
    trial = trial_with(store, experiment, losses(dict.fromkeys(range(1, 51), 1.0)))
    run = store.start_run(trial, allocation_id="b").run_id
    assert store.curves([trial], "loss", group="training", points=5) == {trial: []}
    report = MetricsReport(trial_id=trial, run_id=run, group="training", steps_completed=7, metrics={"loss": 2})
    store.report_metrics([report])
    assert store.curves([trial], "loss", group="training", points=5) == {trial: [(7, 2.0)]}


def test_unknown_trials_and_invalid_counts_are_rejected(store: TrackingStore, experiment: int) -> None:
    trial = trial_with(store, experiment, losses({1: 1.0}))
    with pytest.raises(RecordNotFound, match=f"there is no trial {trial + 1} in"):
        store.curves([trial, trial + 1], "loss", group="training")
    with pytest.raises(ValueError, match="points is 0; expected at least 1"):
        store.curves([trial], "loss", group="training", points=0)
    with pytest.raises(CallTooLarge, match="has 4001 characters"):
        store.curves([trial], "x" * 4001, group="training")
    assert store.curves([], "loss", group="training") == {}


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_beyond_the_range_of_floats_are_not_the_best(store: TrackingStore, experiment: int, sign: int) -> None:
    trial_with(store, experiment, losses({1: sign * 10**400, 2: sign * 2, 3: sign * 1}), group="validation")
    best = store.best_validation(experiment, "loss", smaller_is_better=sign < 0)
    assert best is not None
    assert best[::2] == (sign * 2.0, 2)
    assert finite_or_none(10**400) is None


def test_the_newest_the_least_and_the_greatest_value_of_metrics_are_returned(
    store: TrackingStore, experiment: int
) -> None:
    reports: dict[int, dict[str, Any]] = {
        10: {"loss": 2.0, "acc": 0.5, "big": 10**400},
        20: {"loss": 1.0},
        30: {"loss": float("nan"), "acc": 0.25, "word": "x"},
    }
    first, second = trial_with(store, experiment, reports), trial_with(store, experiment, losses({5: float("inf")}))
    found = store.metric_values([first, second, 999], ["loss", "acc", "word", "other"], group="training")
    assert found[first].pop("acc") == MetricValues(latest=0.25, steps_completed=30, least=0.25, greatest=0.5)
    assert math.isnan(found[first]["loss"].latest)
    assert replace(found[first].pop("loss"), latest=0.0) == MetricValues(
        latest=0.0, steps_completed=30, least=1.0, greatest=2.0
    )
    infinite = MetricValues(latest=math.inf, steps_completed=5, least=None, greatest=None)
    assert found == {first: {}, second: {"loss": infinite}}
    before = store.metric_values([first, second], ["loss", "acc"], group="training", until=29)[first]
    assert [(name, value.latest, value.steps_completed) for name, value in before.items()] == [
        ("loss", 1.0, 20),
        ("acc", 0.5, 10),
    ]
    assert store.metric_values([first], ["loss"], group="validation") == {}
    assert store.metric_values([], ["loss"], group="training") == store.metric_values([first], [], group="x") == {}
    with pytest.raises(CallTooLarge, match="the values of 101 metrics are asked for; expected at most 100"):
        store.metric_values([first], ["loss"] * 101, group="training")
