"""`TrainContext` with a real tracking store, and its background writer."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from det_core import core
from det_core.core import _report_writer
from det_core.core._report_writer import ReportWriter
from det_core.errors import MetricsConflict, StaleRun, StoreBusy, TrackingError
from det_core.interfaces.records import LARGEST_RECORD, MAX_METRICS, MetricsReport
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

from ..waiting import wait_for


@pytest.fixture
def store(det_home: Path) -> Iterator[TrackingStore]:
    with open_store() as store:
        yield store


def steps(store: TrackingStore, trial_id: int = 1) -> list[int]:
    return [report.steps_completed for report in store.metrics(trial_id)]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (-1, ValueError, "steps_completed is -1; expected the number of batches trained so far"),
        (2**63, ValueError, "steps_completed is 9223372036854775808"),
        (1.5, TypeError, "steps_completed is 1.5; expected an integer such as 100"),
        (float("inf"), TypeError, "steps_completed is inf; expected an integer"),
        ("1", TypeError, "steps_completed is '1'; expected an integer"),
        (None, TypeError, "steps_completed is None"),
    ],
)
def test_invalid_steps_are_rejected(store: TrackingStore, given: Any, error: type[Exception], message: str) -> None:
    with core.init() as context, pytest.raises(error, match=message):
        context.train.report_training_metrics(given, {"loss": 1.0})
    assert steps(store) == []


@pytest.mark.integration
def test_steps_may_be_whole_numbers_of_any_library(store: TrackingStore) -> None:
    np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    with core.init() as context:
        for given in (np.int32(1), torch.tensor(2), 3.0, np.float32(4), 0, 2**63 - 1):
            context.train.report_training_metrics(given, {"loss": 1.0})
    assert steps(store) == [0, 1, 2, 3, 4, 2**63 - 1]


def test_none_is_an_error_in_validation_only(store: TrackingStore) -> None:
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": None}, [{"loss": None}])
        context.train.report_metrics("mine", 1, {"x": None})
        with pytest.raises(RuntimeError, match="validation metric 'accuracy' is None; return a number"):
            context.train.report_validation_metrics(1, {"loss": 0.5, "accuracy": None})
    assert [(row.group, dict(row.metrics)) for row in store.metrics(1)] == [
        ("mine", {"x": None}),
        ("training", {"loss": None}),
    ]


def test_metadata_is_kept_with_the_trial(store: TrackingStore) -> None:
    np = pytest.importorskip("numpy")
    with core.init() as context:
        assert context.train.get_metadata() == {}
        context.train.set_metadata({"data": {"rows": np.int64(3)}, "tags": ("a",)})
        assert context.train.get_metadata() == {"data": {"rows": 3}, "tags": ["a"]}
        context.train.set_metadata({"note": "x"})
        with pytest.raises(TypeError, match="'bad' is a set"):
            context.train.set_metadata({"bad": {1}})
    assert store.trial(1).metadata == {"note": "x"}


@pytest.mark.parametrize("error", [None, ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_more_reports_than_the_queue_holds_are_written_in_order(
    store: TrackingStore, error: type[BaseException] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_report_writer, "_CAPACITY", 70)
    monkeypatch.setattr(_report_writer, "_BATCH", 30)

    def body() -> None:
        with core.init() as context:
            for step in range(500):
                context.train.report_training_metrics(step, {"loss": step})
            if error:
                raise error

    if error:
        with pytest.raises(error):
            body()
    else:
        body()
    assert [(row.steps_completed, row.metrics["loss"]) for row in store.metrics(1)] == [(n, n) for n in range(500)]


def test_an_invalid_report_does_not_affect_others(store: TrackingStore) -> None:
    with pytest.raises(MetricsConflict, match="step 7: metric 'loss'"), core.init() as context:
        for step in range(20):
            context.train.report_training_metrics(step, {"loss": step})
        context.train.report_training_metrics(7, {"loss": -1})
        for step in range(20, 40):
            context.train.report_training_metrics(step, {"loss": step})
    assert [row.metrics["loss"] for row in store.metrics(1)] == list(range(40))


def test_a_report_that_is_too_large_ends_no_training(store: TrackingStore, caplog: pytest.LogCaptureFixture) -> None:
    """Names are not counted before, and neither are those of several reports of one step."""
    with core.init() as context:
        for step in range(3):
            context.train.report_training_metrics(step, {"loss": step})
        context.train.report_training_metrics(1, {"x" * LARGEST_RECORD: 1})
        context.train.report_training_metrics(2, {f"metric {number}": 0 for number in range(MAX_METRICS)})
    assert [row.metrics for row in store.metrics(1)] == [{"loss": step} for step in range(3)]
    assert [record.message.partition(": ")[0] for record in caplog.records] == ["a report is left out"] * 2
    assert f"{MAX_METRICS + 1} metrics; expected at most {MAX_METRICS} for one step" in caplog.text


def test_a_replaced_run_gets_an_error_from_its_next_call(store: TrackingStore) -> None:
    with pytest.raises(StaleRun, match="run 1 of trial 1"), core.init() as context:
        store.start_run(1, allocation_id="another")
        context.train.report_training_metrics(1, {"loss": 1.0})
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            context.train.set_status("on")
            time.sleep(0.01)
        pytest.fail("no call raised StaleRun")


def test_several_workers_may_report(store: TrackingStore) -> None:
    context = core.init()

    def work(rank: int) -> None:
        for step in range(500):
            context.train.report_metrics(f"rank{rank}", step, {"loss": step})

    with context:
        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for rank in range(3):
        assert [row.steps_completed for row in store.metrics(1, group=f"rank{rank}")] == list(range(500))


@pytest.mark.integration
def test_nothing_is_started_or_imported_before_it_is_used() -> None:
    code = """
import sys, threading
from det_core import core
with core.init(config={"searcher": {"max_length": None}}) as context:  # as det_torch.init() calls it
    print([thread.name for thread in threading.enumerate() if thread.name.startswith("det-")])
    context.train.flush()
    heavy = {"tensorboard", "tensorboardX", "psutil", "pynvml", "numpy", "torch", "pydantic"}
    print((heavy | {"det_core.core._event_file"}) & set(sys.modules))
    print(context.train._writer._thread)
"""
    output = subprocess.check_output([sys.executable, "-c", code], text=True)
    lines = [line for line in output.splitlines() if "preempt" not in line]
    assert lines[-2:] == ["set()", "None"]
    assert "det-report-writer" not in output
    assert "det-tensorboard" not in output


WORKER = """
import sys
from det_core.core._tensorboard import TensorboardDirectory, TensorboardMode
from det_core.core._train import TrainContext
from det_core.core.event_stream import EventStream
from det_core.interfaces.records import Run
from det_core.tracking import open_store
from det_core.tracking.remote import open_remote_store
from det_core.tracking.remote._remote_store import OwnCalls

rank, calls = int(sys.argv[1]), OwnCalls(lambda: (open_store(sys.argv[2]), None))
store = open_remote_store(calls.call, url=sys.argv[2], close=calls.close)
tensorboard = TensorboardDirectory(TensorboardMode.MANUAL, None, "local", "x", rank=rank)
run = Run(trial_id=1, run_id=1, allocation_id="")
stream = EventStream("worker", cluster_id="", experiment_id=1, config={}, fetch_files=None)
train = TrainContext(store, run, 1, "loss", smaller_is_better=True, tensorboard=tensorboard, stream=stream)
train._start()
assert calls._opened is None
for step in range(300):
    train.report_metrics(f"rank{rank}", step, {"loss": step})
    train.report_training_metrics(step, {f"loss{rank}": step})
train._close()
"""


@pytest.mark.integration
def test_worker_processes_open_the_store_when_they_report(
    store: TrackingStore, forked: list[str], tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    command = [sys.executable, *forked, str(tmp_path / "worker.py")]
    with core.init():
        workers = [subprocess.Popen([*command, str(rank), store.url]) for rank in range(3)]
        assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    assert [dict(row.metrics) for row in store.metrics(1, group="training")] == [
        {f"loss{rank}": step for rank in range(3)} for step in range(300)
    ]
    for rank in range(3):
        assert [row.steps_completed for row in store.metrics(1, group=f"rank{rank}")] == list(range(300))


def test_reporting_after_the_block_raises_an_error(store: TrackingStore) -> None:
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
    for call in (lambda: context.train.report_training_metrics(2, {"loss": 1.0}), context.train.flush):
        with pytest.raises(RuntimeError, match=r"with core.init\(\)"):
            call()
    assert steps(store) == [1]


def report(step: int) -> MetricsReport:
    return MetricsReport(trial_id=1, run_id=1, group="training", steps_completed=step, metrics={})


class Sink:
    """Receiver of the writes of a report writer, which waits until ``may`` is set."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.got: list[int | str] = []
        self.writer = ReportWriter(self.write, lambda reports: None)
        self.writer.open()

    def write(self, reports: Sequence[MetricsReport]) -> None:
        self.may.wait(60)
        self.got += [report.steps_completed for report in reports]


def test_a_full_queue_makes_the_reporter_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_report_writer, "_CAPACITY", 10)
    monkeypatch.setattr(_report_writer, "_BATCH", 4)
    sink = Sink()
    done = threading.Event()

    def produce() -> None:
        for step in range(100):
            sink.writer.submit(report(step))
        done.set()

    threading.Thread(target=produce).start()
    assert not done.wait(0.5)
    sink.may.set()
    assert done.wait(60)
    sink.writer.close()
    assert sink.got == list(range(100))
    assert [record.message.partition(",")[0] for record in caplog.records] == ["10 reports wait for the tracking store"]


def test_the_latest_value_follows_the_reports_before_it() -> None:
    sink = Sink()
    for step in range(2500):
        sink.writer.submit(report(step))
    for value in range(3):
        sink.writer.submit_latest("progress", lambda value=value: sink.got.append(f"progress {value}"))  # type: ignore[misc]
    sink.may.set()
    sink.writer.flush()
    sink.writer.close()
    assert sink.got == [*range(2500), "progress 2"]


def test_the_wait_for_the_writer_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_report_writer, "_WRITE_TIMEOUT", 0.2)
    monkeypatch.setattr(_report_writer, "_CAPACITY", 3)
    sink = Sink()
    for call in (sink.writer.flush, lambda: [sink.writer.submit(report(step)) for step in range(10)]):
        sink.writer.submit(report(0))
        with pytest.raises(Exception, match=r"not written within 0.2 s; is the database reachable\?"):
            call()
    sink.may.set()
    monkeypatch.undo()
    sink.writer.close()


def test_errors_after_the_first_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(reports: Sequence[MetricsReport]) -> None:
        raise ValueError(f"step {reports[0].steps_completed}")

    writer = ReportWriter(refuse, lambda reports: None)
    writer.open()
    for step in range(3):
        writer.submit(report(step))
    with pytest.raises(ValueError, match="step 0"):
        writer.flush()
    assert [record.message.rsplit(": ")[-1] for record in caplog.records] == ["step 1", "step 2"]
    writer.close()


def test_reports_are_kept_while_the_database_is_unavailable() -> None:
    got: list[int] = []
    away = [StoreBusy("away"), StoreBusy("away")]

    def write(reports: Sequence[MetricsReport]) -> None:
        if away:
            raise away.pop()
        got.extend(report.steps_completed for report in reports)

    writer = ReportWriter(write, lambda reports: None)
    writer.open()
    writer.submit(report(0))
    with pytest.raises(StoreBusy):
        writer.flush()
    writer.submit(report(1))
    with pytest.raises(StoreBusy):
        writer.flush()
    assert got == []
    writer.submit(report(2))
    writer.close()
    assert got == [0, 1, 2]


def test_a_home_deleted_under_a_script_is_an_error(det_home: Path) -> None:
    with pytest.raises(TrackingError, match="was deleted, renamed or replaced"), core.init() as context:
        shutil.rmtree(det_home)
        for step in range(3):
            context.train.report_training_metrics(step, {"loss": 1.0})
        context.train.flush()


def test_all_waiting_flushes_raise_if_the_database_is_unavailable() -> None:
    writing, may, away = threading.Event(), threading.Event(), StoreBusy("away")

    def write(reports: Sequence[MetricsReport]) -> None:
        writing.set()
        may.wait(60)
        raise away

    writer = ReportWriter(write, lambda reports: None)
    writer.open()
    writer.submit(report(0))
    assert writing.wait(60)
    heard: list[BaseException] = []

    def flush() -> None:
        try:
            writer.flush()
        except StoreBusy as error:
            heard.append(error)

    threads = [threading.Thread(target=flush) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(writer._waiting) >= 2)
    may.set()
    for thread in threads:
        thread.join(60)
    assert heard == [away] * 3
    with pytest.raises(StoreBusy):
        writer.close()
