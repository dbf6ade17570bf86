"""Schedules as pure arithmetic, and averages of metrics."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from det_core.config import Length, parse_config
from det_core.errors import InvalidExperimentException
from det_core.trial import NEVER, Schedule, TrainingPlan
from det_core.trial.metric_averages import average_metrics, summarize_arrays

BASE = {"searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100}}}


def schedule(length: Any, *, global_batch_size: int = 4, batches_per_epoch: int = 10, **changes: Any) -> Schedule:
    adapter: Any = SimpleNamespace(records_per_batch=global_batch_size, batches_per_epoch=batches_per_epoch)
    plan = TrainingPlan.of(parse_config({**BASE, **changes}), Length.parse(length))
    return Schedule.of(plan, adapter)


def walk(schedule: Schedule) -> Iterator[int]:
    """Yield every boundary until the end."""
    batch = 0
    while batch < schedule.length:
        batch = schedule.next_boundary(batch)
        yield batch


@pytest.mark.parametrize(
    ("length", "batches"),
    [({"batches": 7}, 7), ({"epochs": 3}, 30), ({"records": 41}, 10), ({"records": 3}, 1), (12, 12)],
)
def test_lengths_are_converted_to_batches(length: Any, batches: int) -> None:
    assert schedule(length).length == batches


def test_boundaries_are_multiples_of_every_period_and_the_end() -> None:
    plan = schedule(
        {"batches": 25},
        scheduling_unit=10,
        min_validation_period={"batches": 6},
        min_checkpoint_period={"records": 32},
    )
    boundaries = [(batch, plan.validates_at(batch), plan.checkpoints_at(batch)) for batch in walk(plan)]
    assert boundaries == [
        (6, True, False),
        (8, False, True),
        (10, False, False),
        (12, True, False),
        (16, False, True),
        (18, True, False),
        (20, False, False),
        (24, True, True),
        (25, True, True),
    ]
    assert [batch for batch in range(1, 26) if plan.reports_at(batch)] == [batch for batch, _, _ in boundaries]


def test_a_period_of_zero_means_only_at_the_end() -> None:
    plan = schedule({"batches": 20}, scheduling_unit=5, min_validation_period={"epochs": 0})
    assert [batch for batch in range(21) if plan.validates_at(batch)] == [20]


def test_the_batch_size_is_only_needed_if_a_length_is_in_records() -> None:
    class NoBatchSize:
        batches_per_epoch = 10

        @property
        def records_per_batch(self) -> int:
            raise AssertionError

    adapter: Any = NoBatchSize()
    assert Schedule.of(TrainingPlan(length=Length.parse({"epochs": 2})), adapter).length == 20


def test_a_period_may_be_a_list_of_points() -> None:
    adapter: Any = SimpleNamespace(records_per_batch=4, batches_per_epoch=10)
    points = tuple(map(Length.parse, [{"epochs": 1}, {"batches": 3}, {"records": 12}, 17]))
    found = Schedule.of(TrainingPlan(length=Length.parse(20), validation=points, checkpoint=()), adapter)
    assert list(walk(found)) == [3, 10, 17, 20]
    assert [batch for batch in range(1, 21) if found.validates_at(batch)] == [3, 10, 17, 20]
    assert [batch for batch in range(1, 21) if found.checkpoints_at(batch)] == [20]


def test_epochs_of_data_without_a_length_are_refused() -> None:
    adapter: Any = SimpleNamespace(records_per_batch=4, batches_per_epoch=None)
    assert Schedule.of(TrainingPlan(length=Length.parse({"batches": 8}), validation=NEVER), adapter).length == 8
    with pytest.raises(InvalidExperimentException, match=r"a length is \{'epochs': 1\}.*records_per_epoch"):
        Schedule.of(TrainingPlan(length=Length.parse({"epochs": 1})), adapter)


def test_averages_leave_out_values_that_are_not_numbers() -> None:
    rows = [{"loss": 1, "note": "a", "rare": 4.0}, {"loss": 2.0, "note": "b", "rare": None}]
    assert average_metrics(rows) == {"loss": 1.5, "rare": 4.0}
    assert str(average_metrics([{"loss": float("nan")}, {"loss": 1.0}])["loss"]) == "nan"
    assert average_metrics([]) == {}


@pytest.mark.parametrize("numpy", [True, False])
def test_averages_are_over_batches_and_elements(numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not numpy:
        monkeypatch.setitem(sys.modules, "numpy", None)  # as in a process that has not imported it
    rows = [
        {"one": [1.0], "array": [[1, 2], [3, 4]], "uneven": [[1], [2, 3]], "odd": [1.0, "a"], "huge": 10**400},
        {"one": [3], "array": [5.0, 9.0], "odd": []},
    ]
    assert average_metrics(rows) == {"one": 2.0, "array": 4.0, "uneven": 2.0}
    assert summarize_arrays(rows[0]) == {
        "one": 1.0,
        "array": {"count": 4, "min": 1.0, "max": 4.0, "mean": 2.5},
        "uneven": {"count": 3, "min": 1.0, "max": 3.0, "mean": 2.0},
        "odd": [1.0, "a"],
        "huge": 10**400,
    }


def test_arrays_are_summarized_like_the_lists_of_their_numbers() -> None:
    """Checkpoints contain lists, and the metrics after a resumed run are bitwise the same."""
    np = pytest.importorskip("numpy")
    for array in (
        np.linspace(-1, 7, 1001).reshape(7, -1),
        np.arange(9),
        np.array([[True]]),
        np.array([np.inf, -np.inf]),
    ):
        of_array, of_list = {"m": array}, {"m": array.tolist()}
        assert repr(summarize_arrays(of_array)) == repr(summarize_arrays(of_list))
        assert repr(average_metrics([of_array])) == repr(average_metrics([of_list]))
    text = np.array(["a"])
    assert summarize_arrays({"m": text})["m"] is text
