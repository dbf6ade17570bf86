"""Searcher operations of a script without a runner, in one process and in several."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from det_core import core
from det_core.errors import RankFailed, StoreBusy
from det_core.interfaces.records import Run, SearcherOperationRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

from ..comm.job import layout, outcomes
from .workers import Workers


def searching(max_length: Any = 10, **searcher: Any) -> core.Context:
    return core.init(
        config={
            "searcher": {"name": "single", "metric": "loss", "max_length": max_length, **searcher},
            "entrypoint": "python3 train.py",
        }
    )


@pytest.fixture
def store(det_home: Path) -> Any:
    with open_store() as store:
        yield store


def test_a_script_gets_one_operation_of_the_configured_length(store: TrackingStore) -> None:
    with searching({"batches": 10}) as context:
        for op in context.searcher.operations():
            assert op.length == 10
            op.report_progress(5)
            context.train.report_validation_metrics(10, {"loss": 0.5})
            context.train.flush()
            assert store.experiment(context.trial.experiment_id).progress == 0.5
            op.report_completed(0.25)
            assert len(list(store.metrics(context.trial.trial_id))) == 1
        assert list(context.searcher.operations()) == []
    record = store.searcher_operation(context.trial.trial_id)
    assert record == SearcherOperationRecord(length=10, completed=True, metric=0.25)
    assert not store.run(context.trial.trial_id, 1).preemption_acknowledged  # the run did not stop early


def test_the_operation_is_one_epoch_without_a_config() -> None:
    with core.init() as context:
        assert context.searcher.get_configured_units() is core.Unit.EPOCHS
        assert [op.length for op in context.searcher.operations(auto_ack=False) if op.report_completed(1) is None] == [
            1
        ]


@pytest.mark.parametrize(
    ("max_length", "unit"),
    [
        ({"epochs": 5}, core.Unit.EPOCHS),
        ({"batches": 5}, core.Unit.BATCHES),
        ({"records": 5}, core.Unit.RECORDS),
        (5, None),
        (None, None),
    ],
)
def test_units_are_those_of_the_config(max_length: Any, unit: core.Unit | None) -> None:
    with searching(max_length) as context:
        assert context.searcher.get_configured_units() is unit


def test_stopping_before_the_operation_is_completed_is_acknowledged(store: TrackingStore) -> None:
    with searching() as context:
        assert not store.run(context.trial.trial_id, 1).preemption_acknowledged
        context.searcher.acknowledge_out_of_ops()
        assert store.run(context.trial.trial_id, 1).preemption_acknowledged


def test_operations_without_max_length_raise_an_error_with_advice() -> None:
    with searching(None) as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
        with pytest.raises(
            ValueError, match=r"searcher has no max_length; add one, for example `max_length: \{batches"
        ):
            next(context.searcher.operations())


@pytest.mark.parametrize("metric", [1, 0.5, float("inf"), np.float32(0.5)], ids=str)
def test_numbers_of_any_library_complete_an_operation(store: TrackingStore, metric: Any) -> None:
    with searching() as context:
        for op in context.searcher.operations():
            op.report_completed(metric)
    record = store.searcher_operation(context.trial.trial_id)
    assert record
    assert record.metric == getattr(metric, "item", lambda: metric)()


def test_nan_completes_an_operation(store: TrackingStore) -> None:
    with searching() as context:
        for op in context.searcher.operations():
            op.report_completed(float("nan"))
    record = store.searcher_operation(context.trial.trial_id)
    assert record
    assert record.metric is not None
    assert math.isnan(record.metric)


@pytest.mark.parametrize(
    "metric", [None, "0.5", {"loss": 0.5}, True, [1.0], 1j, Decimal(1), np.array([1.0, 2.0]), 10**400], ids=repr
)
def test_metrics_that_are_not_numbers_leave_the_operation_open(metric: Any) -> None:
    with searching() as context:
        for op in context.searcher.operations():
            with pytest.raises(TypeError, match=r"searcher\.metric; its argument is an? .*expected one number"):
                op.report_completed(metric)
            op.report_completed(1.0)


@pytest.mark.parametrize("progress", [-1, float("nan")])
def test_progress_out_of_range_is_rejected(progress: float) -> None:
    with searching() as context:
        for op in context.searcher.operations():
            with pytest.raises(ValueError, match="expected 0 to 10, the operation's length"):
                op.report_progress(progress)
            op.report_completed(1.0)


@pytest.mark.parametrize("completed", [False, True])
def test_progress_beyond_the_length_counts_as_all_of_it(store: TrackingStore, completed: bool) -> None:
    with searching() as context:
        for op in context.searcher.operations():
            op.report_progress(12.5)
            op.report_progress(10**400)
            if completed:
                op.report_completed(1.0)
                op.report_progress(3)
            context.train.flush()
            assert store.trial(1).progress == 1.0
            if not completed:
                break


def test_an_operation_is_completed_once() -> None:
    with searching() as context:
        for op in context.searcher.operations():
            op.report_completed(1.0)
            with pytest.raises(RuntimeError, match=r"op\.report_completed\(\) was called twice"):
                op.report_completed(1.0)


def test_an_operation_must_be_completed_before_the_next() -> None:
    with searching() as context, pytest.raises(RuntimeError, match="the operation of length 10 was not completed"):
        for _ in context.searcher.operations():
            pass


def test_breaking_out_of_the_loop_leaves_the_operation_open(store: TrackingStore) -> None:
    with searching() as context:
        for _ in context.searcher.operations():
            break
        record = store.searcher_operation(context.trial.trial_id)
        assert record
        assert not record.completed
        assert not store.run(context.trial.trial_id, 1).preemption_acknowledged
        assert [op.length for op in context.searcher.operations() if op.report_completed(1) is None] == [10]


def test_modes_have_the_names_of_the_original() -> None:
    assert {mode.name: mode.value for mode in core.SearcherMode} == {
        "WorkersAskChief": "WORKERS_ASK_CHIEF",
        "ChiefOnly": "CHIEF_ONLY",
    }
    with searching() as context, pytest.raises(ValueError, match="not a valid SearcherMode"):
        context.searcher.operations("EVERYBODY")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, [(ValueError, "there are no searcher operations")] * 2),
        (StoreBusy("away"), [(StoreBusy, "away"), (RankFailed, "rank 0: StoreBusy: away")]),
    ],
)
def test_an_error_of_the_chief_is_an_error_of_all_ranks(
    error: Exception | None, expected: list[tuple[type[Exception], str]]
) -> None:
    """A mistake of the script has its own class on all ranks."""

    def searcher_operation(trial_id: int) -> None:
        if error:
            raise error

    def ask(distributed: core.DistributedContext) -> core.SearcherOperation:
        store: Any = SimpleNamespace(searcher_operation=searcher_operation)
        unused: Any = None
        run = Run(trial_id=1, run_id=1, allocation_id="")
        return next(core.SearcherContext(store, run, distributed, unused, unused).operations())

    asked = outcomes(layout(2), ask)
    assert [(type(each.exception()), str(each.exception())[:32]) for each in asked] == expected


SEARCHING = """
config = {"searcher": {"name": "single", "metric": "loss", "max_length": 10}}
def refused(function, *arguments):
    try:
        function(*arguments)
    except (RuntimeError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
with core.init(distributed=distributed, config=config) as context:
    searcher = context.searcher
"""


@pytest.mark.integration
def test_all_workers_get_the_operations_in_step(det_home: Path, workers: Workers) -> None:
    said = workers.run(
        2,
        SEARCHING
        + """
    lengths = []
    for op in searcher.operations():
        lengths.append(op.length)
        if rank == 0:
            op.report_progress(5)
            op.report_completed(0.5)
        else:
            for report in (op.report_progress, op.report_completed):
                assert "only the chief (rank 0) may call" in refused(report, 1.0), report
    print(lengths, searcher.get_configured_units())
        """,
    )
    assert said == ["[10] None\n"] * 2
    with open_store() as store:
        record = store.searcher_operation(1)
        assert record == SearcherOperationRecord(length=10, completed=True, metric=0.5)


@pytest.mark.integration
def test_only_the_chief_may_iterate_in_chief_only(det_home: Path, workers: Workers) -> None:
    workers.run(
        2,
        SEARCHING
        + """
    mode = core.SearcherMode.ChiefOnly
    if rank == 0:
        for op in searcher.operations(mode):
            distributed.broadcast(op.length)
            op.report_completed(0.5)
        distributed.broadcast(None)
    else:
        assert "SearcherMode.ChiefOnly reserves for rank 0" in refused(searcher.operations, mode)
        while (length := distributed.broadcast(None)) is not None:
            assert length == 10
        """,
    )


@pytest.mark.integration
def test_a_mistake_of_the_chief_reaches_all_workers(det_home: Path, workers: Workers) -> None:
    said = workers.run(
        2,
        SEARCHING
        + """
    print(refused(list, searcher.operations()))
        """,
    )
    assert len(set(said)) == 1
    assert said[0].startswith("RuntimeError: the operation of length 10 was not completed")


@pytest.mark.integration
def test_an_error_that_only_the_chief_can_unpickle_reaches_all_workers_as_text(
    det_home: Path, workers: Workers
) -> None:
    """Errors are sent as text, because the other workers may be unable to unpickle them."""
    said = workers.run(
        2,
        SEARCHING
        + """
    class Odd(Exception):
        def __init__(self, one, other):
            super().__init__(f"{one} {other}")
    def ask(store, trial_id):
        raise Odd("no", "record")
    type(context._store).searcher_operation = ask
    try:
        list(searcher.operations())
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        """,
    )
    assert said == ["Odd: no record\n", "RankFailed: rank 0: Odd: no record\n"]
