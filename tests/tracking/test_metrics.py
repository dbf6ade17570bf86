"""Reports of metrics in the tracking store."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any

import pytest
import sqlalchemy as sa

from det_core.errors import CallTooLarge, MetricsConflict, UnwritableText
from det_core.interfaces.records import LARGEST_RECORD, LONGEST_NAME, MAX_METRICS, MetricsReport, Run, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import _metric_names, _metrics
from det_core.tracking._metrics_merge import merge_reports

Report = Callable[..., MetricsReport]
NAN, INF = math.nan, math.inf

MERGED: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = [
    ("keys are merged", [{"a": 1}, {"b": 2}], {"a": 1, "b": 2}),
    ("equal values are allowed", [{"a": 1.5}, {"a": 1.5, "b": 2}], {"a": 1.5, "b": 2}),
    ("an int equals its float", [{"a": 1}, {"a": 1.0}], {"a": 1.0}),
    ("lists are compared as a whole", [{"a": [1, [2]]}, {"a": (1, [2])}], {"a": [1, [2]]}),
    ("NaN equals NaN", [{"a": "NaN", "b": [NAN]}, {"b": [NAN]}], {"a": "NaN", "b": ["NaN"]}),
    ("None is a value", [{"a": None}, {"b": None}], {"a": None, "b": None}),
    ("any mapping is allowed", [MappingProxyType({"a": MappingProxyType({"x": 1})}), {}], {"a": {"x": 1}}),
]
CONFLICTS: list[tuple[str, list[dict[str, Any]], str]] = [
    ("another value", [{"a": 1.5}, {"a": 1.25}], "metric 'a' was reported as 1.5, and now as 1.25"),
    ("another list", [{"a": [1, 2]}, {"a": [2, 1]}], "metric 'a'"),
    ("None is not a number", [{"a": 0}, {"a": None}], "metric 'a'"),
    ("NaN is not a number", [{"a": 0.0}, {"a": NAN}], "metric 'a'"),
    ("only one key differs", [{"a": 1, "b": 1}, {"a": 1, "b": 2}], "metric 'b'"),
]


def wire(value: Any) -> Any:
    """Return the value with NaN replaced by its name, so that it can be compared."""
    if isinstance(value, dict):
        return {key: wire(item) for key, item in value.items()}
    if isinstance(value, list):
        return [wire(item) for item in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def send(store: TrackingStore, reports: list[MetricsReport], together: bool) -> None:
    for batch in [reports] if together else [[report] for report in reports]:
        store.report_metrics(batch)


@pytest.mark.parametrize("together", [True, False], ids=["one batch", "two batches"])
@pytest.mark.parametrize(("parts", "expected"), [row[1:] for row in MERGED], ids=[row[0] for row in MERGED])
def test_reports_of_one_step_are_merged(
    store: TrackingStore, report: Report, parts: list[Any], expected: Any, together: bool
) -> None:
    send(store, [replace(report(5), metrics=part) for part in parts], together)
    (found,) = store.metrics(report(5).trial_id)
    assert wire(found.metrics) == expected


@pytest.mark.parametrize("together", [True, False], ids=["one batch", "two batches"])
@pytest.mark.parametrize(("parts", "message"), [row[1:] for row in CONFLICTS], ids=[row[0] for row in CONFLICTS])
def test_a_batch_with_a_contradiction_is_rejected_as_a_whole(
    store: TrackingStore, report: Report, parts: list[Any], message: str, together: bool
) -> None:
    first, second = (replace(report(5), metrics=part) for part in parts)
    if not together:
        store.report_metrics([first])
    with pytest.raises(MetricsConflict, match=f"group 'training', step 5: {message}"):
        store.report_metrics([report(4, x=1), second] if not together else [report(4, x=1), first, second])
    assert [found.steps_completed for found in store.metrics(first.trial_id)] == ([] if together else [5])


@pytest.mark.integration
def test_many_reports_of_one_step_are_merged_in_linear_time(report: Report) -> None:
    reports = [report(5, **{f"m{number}": number}) for number in range(MAX_METRICS)]
    begin = time.process_time()
    (merged,) = merge_reports(reports).values()
    assert len(merged.metrics) == MAX_METRICS and len(reports[0].metrics) == 1
    assert time.process_time() - begin < 10, "it takes seconds if each report copies those before"


def test_a_call_has_a_maximum_number_of_groups(store: TrackingStore, report: Report) -> None:
    """The earlier reports of each are looked for while others wait to write. Writers divide a batch that is refused."""
    reports = [replace(report(5, x=1), group=f"g{number}") for number in range(101)]
    with pytest.raises(CallTooLarge, match="101 groups"):
        store.report_metrics(reports)
    store.report_metrics(reports[1:])
    assert len(list(store.metrics(reports[0].trial_id))) == 100
    with pytest.raises(CallTooLarge, match="101 groups"):
        merge_reports([replace(report(5, x=1), trial_id=number) for number in range(101)])


def test_a_call_has_a_maximum_number_of_steps(report: Report) -> None:
    """Others wait to write in the meantime."""
    reports = [report(step, x=1) for step in range(10_001)]
    with pytest.raises(CallTooLarge, match="10001 steps"):
        merge_reports(reports)
    assert len(merge_reports(reports[1:])) == 10_000


@pytest.mark.integration
def test_a_report_reads_no_reports_of_other_steps(store: TrackingStore, report: Report) -> None:
    """Others wait to write in the meantime."""
    store.report_metrics([report(step, x=1) for step in range(1, 5000)])
    tracemalloc.start()
    try:
        store.report_metrics([report(0, y=1), report(1, y=1), report(5000, y=1)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20, "5000 rows take more"
    assert [len(found.metrics) for found in store.metrics(report(0).trial_id)] == [1, 2, *[1] * 4999]


@pytest.fixture
def operations(store: TrackingStore) -> Callable[[], int]:
    """Return a function that returns the number of operations of SQLite in transactions for writing."""
    count = 0

    def add() -> int:
        nonlocal count
        count += 1
        return 0

    engine = store._database._writers  # type: ignore[attr-defined]
    if engine.dialect.name != "sqlite":
        pytest.skip("only SQLite counts its operations")
    sa.event.listen(engine, "begin", lambda opened: opened.connection.set_progress_handler(add, 1))
    return lambda: count


def test_a_later_run_steps_over_no_reports(
    store: TrackingStore, report: Report, trial: TrialRecord, operations: Callable[[], int]
) -> None:
    """Others wait to write in the meantime."""
    store.report_metrics([report(0, x=1)])
    store.start_run(trial.id, allocation_id="second")
    store.report_metrics([report(step, run_id=2, x=step) for step in range(1, 5000)])
    before = operations()
    store.report_metrics([report(0, group, run_id=2, y=1) for group in ("training", "new")])
    assert 0 < operations() - before < 4000, "at least one for each report"


def test_what_cannot_be_stored_is_refused_before_reports_are_archived(
    store: TrackingStore, report: Report, trial: TrialRecord, operations: Callable[[], int]
) -> None:
    """It can be repeated without end, while others wait to write."""
    store.report_metrics([report(step, x=step) for step in range(1, 5000)])
    before = operations()
    with pytest.raises(UnwritableText):
        store.start_run(trial.id, allocation_id="\0")
    complete(store, store.run(trial.id, 1), 5000)
    store.start_run(trial.id, allocation_id="second")
    with pytest.raises(UnwritableText):
        store.report_metrics([report(0, run_id=2, x="\0")])
    assert 0 < operations() - before < 4000, "at least one for each report"
    assert len(list(store.metrics(trial.id))) == 4999


def test_a_call_with_many_reports_has_few_statements(store: TrackingStore, report: Report, trial: TrialRecord) -> None:
    """Others wait to write in the meantime."""
    numbers = range(100)
    store.report_metrics([report(step, x=step) for step in numbers])
    statements: list[str] = []
    engine = store._database._writers  # type: ignore[attr-defined]
    sa.event.listen(engine, "before_cursor_execute", lambda *said: statements.append(said[2]))
    store.report_metrics([report(step, y=step) for step in numbers])
    assert len(statements) < 20
    store.start_run(trial.id, allocation_id="second")
    statements.clear()
    store.report_metrics([report(0, f"g{number}", run_id=2, z=1) for number in numbers])
    assert len(statements) < 120, "a lookup in an index for each group"


def test_earlier_reports_that_are_large_are_not_in_memory_together(
    store: TrackingStore, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_metrics, "_PAGE_CHARACTERS", 1000)
    store.report_metrics([report(step, text="x" * 2000) for step in (1, 2)])
    with pytest.raises(CallTooLarge, match="report fewer at once"):
        store.report_metrics([report(1, y=1), report(2, y=1)])
    store.report_metrics([report(1, y=1)])
    assert [len(found.metrics) for found in store.metrics(report(1).trial_id)] == [2, 1]


def test_metrics_are_added_beside_those_of_batches(store: TrackingStore, report: Report) -> None:
    batches = [{"loss": 1.0}, {"loss": NAN}]
    store.report_metrics([report(5, batches=batches, a=1), report(6, a=1), report(7, batches=[], a=1)])
    store.report_metrics([report(step, b=2) for step in (5, 6, 7)])
    found = list(store.metrics(report(5).trial_id))
    assert [one.metrics for one in found] == [{"a": 1, "b": 2}] * 3
    assert repr([one.batch_metrics for one in found]) == repr([batches, None, []])


@pytest.mark.parametrize("together", [True, False], ids=["one batch", "two batches"])
def test_batch_metrics_can_be_reported_once(store: TrackingStore, report: Report, together: bool) -> None:
    batches = [{"loss": 1.0}, {"loss": NAN}]
    send(store, [report(5, a=1), report(5, batches=batches, b=2)], together)
    (found,) = store.metrics(report(5).trial_id)
    assert wire([*(found.batch_metrics or [])]) == [{"loss": 1.0}, {"loss": "NaN"}]
    with pytest.raises(MetricsConflict, match="batch metrics were reported twice"):
        store.report_metrics([report(5, batches=batches)])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"group": ""}, ValueError, "group '' must be a name"),
        ({"group": "a.b"}, ValueError, "group 'a.b' must be a name"),
        ({"metrics": {"epoch": "1"}}, ValueError, "'epoch' must be a number, not '1'"),
        ({"metrics": {"epochs": True}}, ValueError, "'epochs' must be a number"),
        ({"metrics": {"loss": {"a": {1}}}}, TypeError, r"'loss.a' is a builtins.set; expected numbers"),
        ({"metrics": {"loss": 1j}}, TypeError, "'loss' is a builtins.complex"),
        ({"metrics": {1: 1.0}}, TypeError, "the name of metric 1 must be a string"),
        ({"batch_metrics": [{"loss": b"x"}]}, TypeError, r"'\[0\].loss' is a builtins.bytes"),
    ],
)
def test_invalid_reports_are_rejected(
    store: TrackingStore, report: Report, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        store.report_metrics([report(1, fine=1), replace(report(2), **change)])
    assert list(store.metrics(report(1).trial_id)) == []


def test_non_finite_numbers_are_read_back_unchanged(store: TrackingStore, report: Report) -> None:
    values = {"n": NAN, "p": INF, "m": -INF, "deep": {"x": [1.0, INF]}, "zero": -0.0, "tiny": 5e-324, "text": "nan"}
    store.report_metrics([report(1, **values)])
    (found,) = store.metrics(report(1).trial_id)
    assert repr(found.metrics) == repr(values)


@pytest.mark.integration
def test_the_name_of_a_list_is_not_copied_for_each_number(store: TrackingStore, report: Report) -> None:
    """That would take hours, in which nobody else can write."""
    with pytest.raises(CallTooLarge, match="expected at most"):
        store.report_metrics([report(1, **{"x" * (16 << 20): [NAN] * 300_000})])


def test_times_are_kept_to_the_microsecond(store: TrackingStore, report: Report) -> None:
    time = datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=timezone.utc)
    store.report_metrics([replace(report(1), time=time), report(2)])
    first, second = store.metrics(report(1).trial_id)
    assert first.time == time
    assert second.time is not None


@pytest.mark.integration
def test_many_pages_of_metrics_are_sorted_by_step_and_group(store: TrackingStore, report: Report) -> None:
    reports = [report(step, group, x=step) for step in range(1500) for group in ("validation", "training")]
    store.report_metrics(reports[1000:])
    store.report_metrics(reports[:1000])
    store.report_metrics([])
    trial = reports[0].trial_id
    found = [(row.steps_completed, row.group, row.metrics["x"]) for row in store.metrics(trial)]
    assert found == [(step, group, step) for step in range(1500) for group in ("training", "validation")]
    assert [row.steps_completed for row in store.metrics(trial, group="training", after=1497)] == [1498, 1499]
    assert store.trial(trial).steps_completed == 1499


@pytest.mark.integration
def test_large_reports_are_not_in_memory_together(
    store: TrackingStore, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_metrics, "_PAGE_CHARACTERS", 1 << 20)
    monkeypatch.setattr(_metric_names, "_CHARACTERS", 1 << 20)
    numbers = list(range(1000, 201_000))  # take 1 MB as text, and 8 as a list
    for step in range(12):
        store.report_metrics([report(step, "validation", values=numbers, loss=step)])
    trial = report(0).trial_id
    tracemalloc.start()
    try:
        found = [row.metrics["loss"] for row in store.metrics(trial)]
        names = store.metric_names([trial])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found, names) == (list(range(12)), {"validation": ["loss"]})
    assert peak < 60 << 20


def longest_pause(call: Callable[[], object]) -> float:
    """Return the CPU seconds for which a call in another thread let this one not run at most."""
    with ThreadPoolExecutor(1) as pool:
        called, longest, before = pool.submit(call), 0.0, time.process_time()  # it stands still while others run
        while not called.done():
            time.sleep(0.001)
            before, last = time.process_time(), before
            longest = max(longest, before - last)
        called.result()
    return longest


@pytest.mark.integration
def test_many_names_of_one_run_keep_nobody_from_working(store: TrackingStore, report: Report) -> None:
    """Tokens of runs report what they like, and whoever opens a page of a trial looks for its metrics."""
    for step in range(5):
        names = range(MAX_METRICS * step, MAX_METRICS * (step + 1))
        store.report_metrics([report(step, "validation", **{f"a metric with a long name {n}": n / 7 for n in names})])
    trial = report(0).trial_id
    assert longest_pause(lambda: store.metric_names([trial])) < 0.5
    assert longest_pause(lambda: sum(len(row.metrics) for row in store.metrics(trial))) < 0.5
    (names_found,) = store.metric_names([trial]).values()
    assert MAX_METRICS <= len(names_found) <= 4 * MAX_METRICS


@pytest.mark.integration
def test_ten_thousand_metrics_are_all_found(store: TrackingStore, report: Report) -> None:
    names = [f"layer {number}/norm of the gradient" for number in range(10_000)]
    for group in ("training", "validation"):
        store.report_metrics([report(step, group, **dict.fromkeys(names, step / 3)) for step in range(5)])
    assert store.metric_names([report(0).trial_id]) == dict.fromkeys(("training", "validation"), sorted(names))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([dict.fromkeys(map(str, range(50_000)), 0)], f"50000 metrics; expected at most {MAX_METRICS} for one step"),
        ([dict.fromkeys(map(str, range(MAX_METRICS)), 0), {"x": 0}], f"{MAX_METRICS + 1} metrics; expected at most"),
        ([{"x": ["y" * LARGEST_RECORD]}], f"expected at most {LARGEST_RECORD}: put data into files"),
    ],
    ids=["names", "names of two reports", "characters"],
)
def test_what_a_run_reports_for_one_step_is_bounded(
    store: TrackingStore, report: Report, parts: list[dict[str, Any]], message: str
) -> None:
    *before, last = [replace(report(1), metrics=part) for part in parts]
    store.report_metrics(before)
    with pytest.raises(CallTooLarge, match=message):
        store.report_metrics([last])
    assert [row.metrics for row in store.metrics(last.trial_id)] == parts[:-1]


def test_the_name_of_a_group_is_bounded(store: TrackingStore, report: Report) -> None:
    with pytest.raises(CallTooLarge, match=f"expected at most {LONGEST_NAME}"):
        store.report_metrics([report(1, "g" * (LONGEST_NAME + 1), x=1)])


def test_steps_completed_never_goes_back_within_a_run(store: TrackingStore, report: Report) -> None:
    store.report_metrics([report(100)])
    store.report_metrics([report(50)])
    assert store.trial(report(1).trial_id).steps_completed == 100


def complete(store: TrackingStore, run: Run, step: int | None) -> None:
    uuid = f"{run.run_id}-{step}"
    store.begin_checkpoint(uuid, trial_id=run.trial_id, run_id=run.run_id, storage={})
    store.complete_checkpoint(uuid, run_id=run.run_id, steps_completed=step, resources={}, metadata={})


@pytest.mark.parametrize(
    ("checkpoints", "kept"), [([], 0), ([20], 20), ([10, 20], 20), ([None], 30)], ids=["none", "one", "two", "unknown"]
)
def test_a_new_run_archives_the_metrics_after_its_checkpoint(
    store: TrackingStore, run: Run, report: Report, checkpoints: list[int | None], kept: int
) -> None:
    store.report_metrics([report(step, group, x=1) for step in (10, 20, 30) for group in ("training", "validation")])
    for step in checkpoints:
        complete(store, run, step)
    store.start_run(run.trial_id, allocation_id="second")
    assert store.trial(run.trial_id).steps_completed == kept
    assert {row.steps_completed for row in store.metrics(run.trial_id)} == {s for s in (10, 20, 30) if s <= kept}
    assert {row.steps_completed for row in store.metrics(run.trial_id, archived=True)} == {
        s for s in (10, 20, 30) if s > kept
    }


def steps_of_runs(store: TrackingStore, trial_id: int, group: str) -> list[tuple[int, int]]:
    return [(row.steps_completed, row.run_id) for row in store.metrics(trial_id, group=group)]


def test_the_first_report_of_a_newer_run_archives_later_metrics_of_its_group(
    store: TrackingStore, run: Run, report: Report
) -> None:
    groups = ("epochs", "training", "validation")
    store.report_metrics([report(step, group, x=1) for step in (10, 20, 30) for group in groups])
    complete(store, run, 30)
    store.start_run(run.trial_id, allocation_id="second")
    store.report_metrics([report(20, run_id=2, x=2), report(1, "epochs", run_id=2, x=2)])
    assert steps_of_runs(store, run.trial_id, "training") == [(10, 1), (20, 2)]
    assert steps_of_runs(store, run.trial_id, "epochs") == [(1, 2)]
    assert steps_of_runs(store, run.trial_id, "validation") == [(10, 1), (20, 1), (30, 1)]
    assert len(list(store.metrics(run.trial_id, archived=True))) == 5
    assert store.trial(run.trial_id).steps_completed == 30


@pytest.mark.parametrize("together", [True, False], ids=["one batch", "several batches"])
def test_a_run_that_reports_an_earlier_step_later_replaces_that_step_only(
    store: TrackingStore, run: Run, report: Report, together: bool
) -> None:
    store.report_metrics([report(step, x=1) for step in (0, 10, 20, 30)])
    complete(store, run, 30)
    store.start_run(run.trial_id, allocation_id="second")
    send(store, [report(step, run_id=2, x=2) for step in (30, 40, 10, 5)], together)
    assert steps_of_runs(store, run.trial_id, "training") == [(0, 1), (5, 2), (10, 2), (20, 1), (30, 2), (40, 2)]


def test_a_new_run_keeps_what_the_run_of_its_checkpoint_kept(store: TrackingStore, run: Run, report: Report) -> None:
    store.report_metrics([report(step, group) for step in (10, 30) for group in ("training", "validation")])
    complete(store, run, 30)
    second = store.start_run(run.trial_id, allocation_id="second")
    store.report_metrics([report(step, run_id=2) for step in (10, 20)])  # it began from nothing
    complete(store, second, 10)
    store.start_run(run.trial_id, allocation_id="third")
    assert steps_of_runs(store, run.trial_id, "training") == [(10, 2)]
    assert steps_of_runs(store, run.trial_id, "validation") == [(10, 1), (30, 1)]


def test_the_best_validation_is_a_finite_number_of_any_trial(
    store: TrackingStore, trial: TrialRecord, report: Report
) -> None:
    name = 'a."b\\c'
    other = store.create_trial(trial.experiment_id, hparams={}, seed=0)
    store.start_run(other.id, allocation_id="a")
    elsewhere = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0)
    store.start_run(elsewhere.id, allocation_id="a")

    def at(step: int, value: Any, trial_id: int = trial.id, group: str = "validation") -> MetricsReport:
        return replace(report(step, group), trial_id=trial_id, metrics={name: value, "other": -99})

    unusable = ("1e9", NAN, INF, -INF, None, True, [1e9], {"x": 1e9})
    store.report_metrics([at(step, value) for step, value in enumerate(unusable)])

    def best(smaller: bool, trial_id: int | None = None) -> Any:
        return store.best_validation(trial.experiment_id, name, smaller_is_better=smaller, trial_id=trial_id)

    assert best(True) is best(False) is None
    store.report_metrics([at(10, 3.5), at(20, 2), at(30, 2.0), at(15, 4, other.id), at(15, -1, group="training")])
    store.report_metrics([at(5, 1000, elsewhere.id)])
    assert best(True) == (2.0, trial.id, 20)
    assert best(False) == (4.0, other.id, 15)
    assert best(False, trial.id) == (3.5, trial.id, 10)
    assert best(False, elsewhere.id) is None
    store.start_run(other.id, allocation_id="b")  # without a checkpoint: its metrics are archived
    assert best(False) == (3.5, trial.id, 10)
