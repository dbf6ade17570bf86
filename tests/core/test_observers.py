"""Delivery of events to observers and hooks, which never disturbs the process that sends them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import importlib_metadata
import pytest

from det_core import core, events
from det_core.config import parse_config
from det_core.core import event_stream, observer_thread
from det_core.core.client_events import ClientEvents
from det_core.core.event_stream import EventStream, make_fetch_files
from det_core.errors import CheckpointNotFound, StorageError
from det_core.interfaces.records import LogLine, State
from det_core.plugins import Registry
from det_core.storage.config import DirectoryConfig
from det_core.storage.directory import DirectoryStorage
from det_core.tracking import open_store
from det_core.tracking.secret_files import extract_secrets

from ..forked_child import ending_children, fork_before
from ..waiting import wait_for
from . import observed_plugin
from .observed_plugin import calls, reached, released

TRIAL = {"trial_id": 3, "run_id": 1, "hparams": {"lr": 0.1}}
CONFIG = {"searcher": {"name": "single", "metric": "loss", "max_length": 1}, "entrypoint": "m:T"}

Open = Callable[..., EventStream]


@pytest.fixture(autouse=True)
def plugins(det_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Install the plugin, and release its hanging calls after the test."""
    modules = {"core": "det_core.plugins.builtin", "det-observed": observed_plugin.__name__}
    installed = Registry(importlib_metadata.EntryPoint(name, value, "det") for name, value in modules.items())
    for user in ("core.observer_thread", "config._plugin_blocks", "config._json_schema", "plugins._events"):
        monkeypatch.setattr(f"det_core.{user}.plugin_registry", lambda: installed)
    calls.clear()
    reached.clear()
    released.clear()
    yield installed
    released.set()


@pytest.fixture
def open_stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Return a function that opens a stream for a block ``observers``."""
    monkeypatch.setattr(observer_thread, "LINGER", 0.01)
    opened = []

    def start(place: Any = "worker", **observers: Any) -> EventStream:
        config = extract_secrets(parse_config({**CONFIG, "observers": observers}).dump())
        stream = EventStream(
            place, cluster_id="here", experiment_id=1, config=config, trial=TRIAL, fetch_files=lambda *_: None
        )
        stream.open()
        opened.append(stream)
        return stream

    yield start
    released.set()
    for stream in opened:
        stream.close()


def report(stream: EventStream, step: int = 1) -> None:
    now = datetime.now(timezone.utc)
    stream.emit(events.MetricsReported, group="training", steps_completed=step, metrics={"loss": 1.0}, time=now)


def names(*without: str) -> list[str]:
    return [name for name, _, _ in calls if name not in without]


def test_all_calls_come_from_one_thread_in_order(open_stream: Open) -> None:
    stream = open_stream(probe={})
    stream.emit(events.WorkerStarted, steps_completed=0)
    report(stream)
    stream.emit(events.WorkerFinished, error=None, preempted=False)
    stream.close()
    assert names("flush") == ["made", "open", "worker_started", "metrics_reported", "worker_finished", "close"]
    assert names()[-2:] == ["flush", "close"]
    assert {thread for _, _, thread in calls} == {"det-observer-probe"}
    (event,) = [argument for name, argument, _ in calls if name == "metrics_reported"]
    assert (event.experiment_id, event.trial_id, event.run_id, event.hparams) == (1, 3, 1, {"lr": 0.1})


def test_events_are_flushed_while_the_process_goes_on(open_stream: Open) -> None:
    stream = open_stream(probe={})
    report(stream)
    wait_for(lambda: names("flush") == ["made", "open", "metrics_reported"] and names()[-1] == "flush")
    report(stream)
    wait_for(lambda: names()[-2:] == ["metrics_reported", "flush"])


def test_an_observer_is_flushed_again_although_nothing_happens(
    open_stream: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer_thread, "IDLE", 0.01)
    report(open_stream(probe={"raises": ["flush"]}))
    wait_for(lambda: names()[-3:] == ["flush", "flush", "flush"])


def test_an_observer_receives_only_events_that_it_handles(open_stream: Open) -> None:
    stream = open_stream(ends={})
    report(stream)
    stream.emit(events.TrialFinished, state=State.COMPLETED)
    stream.close()
    assert names() == ["ends"]


def test_an_event_without_receivers_is_not_created(open_stream: Open) -> None:
    class Costly(events.TrialEvent):
        name = "metrics_reported"

        def __post_init__(self) -> None:
            raise AssertionError("created")

    stream = open_stream(ends={})
    stream.emit(events.TrialFinished, state=State.COMPLETED)
    wait_for(lambda: names() == ["ends"])
    stream.emit(Costly)
    assert not stream.has_receivers(Costly)


def test_only_the_observer_sees_secrets(open_stream: Open) -> None:
    stream = open_stream(probe={"token": "hush-hush"})
    stream.emit(events.WorkerStarted, steps_completed=0)
    stream.close()
    assert ("made", "hush-hush") in [call[:2] for call in calls]
    context, event = (next(each for name, each, _ in calls if name == kind) for kind in ("open", "worker_started"))
    assert context.config["observers"] == {
        "probe": {"raises": [], "hangs": [], "end_timeout": 0.0, "is_det_error": False, "token": "********"}
    }
    assert event.config is context.config  # no copy per event
    assert "det-secret" not in repr(event.config)


@pytest.mark.parametrize("call", ["metrics_reported", "flush", "close"])
def test_an_error_is_logged_once_and_counted(open_stream: Open, caplog: pytest.LogCaptureFixture, call: str) -> None:
    stream = open_stream(probe={"raises": [call]}, ends={})
    for step in range(3):
        report(stream, step)
    stream.emit(events.TrialFinished, state=State.COMPLETED)
    stream.close()
    assert names().count("metrics_reported") == 3
    assert {"trial_finished", "ends", "close"} <= {*names()}
    tracebacks = [record for record in caplog.records if record.exc_info]
    assert len(tracebacks) == 1
    message = tracebacks[0].getMessage()
    assert f"observer 'probe' of plugin det-observed  ({observed_plugin.__name__}) failed in {call}" in message
    counted = names().count(call)
    summary = [record.getMessage() for record in caplog.records if "calls failed" in record.getMessage()]
    expected = f"{counted} calls failed, most recently {call}: RuntimeError: no {call} today"
    assert [expected in text for text in summary] == [True] * (counted > 1)
    assert "dropped" not in caplog.text


def test_the_end_shows_the_last_error(open_stream: Open, caplog: pytest.LogCaptureFixture) -> None:
    stream = open_stream(probe={"raises": ["metrics_reported", "close"], "is_det_error": True})
    report(stream)
    stream.close()
    assert caplog.messages[-1].endswith("2 calls failed, most recently close: DetError: no close today")


def test_errors_that_say_what_to_do_have_no_traceback(open_stream: Open, caplog: pytest.LogCaptureFixture) -> None:
    stream = open_stream(probe={"raises": ["flush"], "is_det_error": True})
    report(stream)
    stream.close()
    (first, *_) = caplog.records
    assert "failed in flush: no flush today; further errors are counted" in first.getMessage()
    assert not first.exc_info


@pytest.mark.parametrize("call", ["made", "open"])
def test_an_observer_that_cannot_be_opened_receives_nothing(
    open_stream: Open, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    stream = open_stream(probe={"raises": [call]})
    report(stream)
    stream.close()
    assert names()[-1] == call
    assert f"no {call} today" in caplog.text and "cannot be opened" in caplog.text
    assert "calls failed" not in caplog.text and ": 1 events were dropped from det's queue" in caplog.text


def test_an_observer_that_exits_is_an_error(open_stream: Open, caplog: pytest.LogCaptureFixture) -> None:
    stream = open_stream(exits={})
    stream.emit(events.TrialFinished, state=State.COMPLETED)
    stream.close()
    assert "sys.exit(3)" in caplog.text


@pytest.mark.parametrize("call", ["made", "open", "metrics_reported", "flush", "close"])
def test_an_observer_that_hangs_is_abandoned(
    open_stream: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(event_stream, "END_TIMEOUT", 0.2)
    stream = open_stream(probe={"hangs": [call]}, ends={})
    report(stream)
    stream.emit(events.TrialFinished, state=State.COMPLETED)
    start = time.monotonic()
    stream.close()
    assert time.monotonic() - start < 60
    shown = "open" if call == "made" else call
    assert f"did not end in time and is abandoned in {shown}" in caplog.text
    assert "ends" in names()


def test_an_observer_may_ask_for_more_time_at_the_end(
    open_stream: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "END_TIMEOUT", 0.05)
    stream = open_stream(probe={"hangs": ["flush"], "end_timeout": 60})
    report(stream)
    assert reached.wait(60)
    timer = threading.Timer(0.5, released.set)
    timer.start()
    stream.close()
    timer.join()
    assert (names()[-1], caplog.text) == ("close", "")


def test_a_full_queue_drops_and_counts_events_but_no_ends(
    open_stream: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer_thread, "CAPACITY", 10)
    stream = open_stream(probe={"hangs": ["worker_started"]})
    stream.emit(events.WorkerStarted, steps_completed=0)
    assert reached.wait(60)
    for step in range(25):
        report(stream, step)
    stream.emit(events.WorkerFinished, error=None, preempted=False)
    assert caplog.text.count("its queue is full") == 1 and "now in worker_started" in caplog.text
    released.set()
    stream.close()
    assert names().count("metrics_reported") == 10
    assert names("flush", "close")[-1] == "worker_finished"
    assert ": 15 events were dropped from det's queue" in caplog.text


def test_lines_of_the_log_fill_the_queue(open_stream: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer_thread, "CAPACITY", 100)
    stream = open_stream(probe={"hangs": ["worker_started"]})
    stream.emit(events.WorkerStarted, steps_completed=0)
    assert reached.wait(60)
    now = datetime.now(timezone.utc)
    for _ in range(5):
        line = LogLine(trial_id=3, run_id=1, rank=0, stdtype="stdout", log="x" * 10_000, time=now)
        stream.emit(events.LogsRecorded, lines=[line] * 4)
    released.set()
    stream.close()
    assert names().count("logs_recorded") == 2  # 45 each


def test_a_forked_child_delivers_nothing(open_stream: Open) -> None:
    stream = open_stream(probe={})
    report(stream)
    with ending_children():
        if fork_before():
            report(stream, 2)
        stream.close()
    assert names().count("metrics_reported") == 1


@pytest.mark.parametrize("error", [RuntimeError("no hook today"), SystemExit("no hook today")])
def test_an_error_in_a_hook_is_logged_once_and_counted(
    open_stream: Open,
    plugins: Registry,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
) -> None:
    """Also one that would end the thread that has sent the event, such as the one that stores the log."""

    def failing(event: events.Event) -> None:
        raise error

    seen: list[events.Event] = []
    hooked = [("det-bad", failing), ("det-good", lambda event: seen.append(event))]
    monkeypatch.setattr(plugins, "implements", lambda hook: True)
    monkeypatch.setattr(plugins, "implementations", lambda hook: hooked)
    stream = open_stream()
    for step in range(4):
        report(stream, step)
    stream.close()
    assert [event.steps_completed for event in seen] == [0, 1, 2, 3]  # type: ignore[attr-defined]
    assert caplog.text.count(f"{type(error).__name__}: no hook today") == 1
    assert "plugin det-bad failed 4 times in det_metrics_reported" in caplog.text


def test_starts_are_held_back_until_something_is_reported() -> None:
    sent: list[str] = []
    stream = EventStream(
        "script",
        cluster_id="here",
        experiment_id=1,
        config={},
        trial=TRIAL,
        fetch_files=lambda *_: None,
        waits_for_report=True,
    )
    stream._send = lambda kind, **_: sent.append(kind.name)  # type: ignore[method-assign,func-returns-value]
    stream.emit(events.TrialStarted)
    assert sent == []
    report(stream)
    stream.emit(events.TrialFinished, state=State.COMPLETED)
    assert sent == ["trial_started", "metrics_reported", "trial_finished"]


@pytest.mark.parametrize(
    ("error", "state", "described"),
    [(None, State.COMPLETED, None), (ValueError("two\nlines"), State.ERROR, "ValueError: two lines")],
)
def test_a_script_sends_the_events_of_runner_and_worker(
    tmp_path: Path, error: Exception | None, state: State, described: str | None
) -> None:
    config = {"observers": {"probe": {}}, "searcher": {"name": "single", "metric": "loss", "max_length": 10}}
    with suppress(ValueError), core.init(config=config, checkpoint_storage=tmp_path / "stored") as context:
        context.train.report_validation_metrics(7, {"loss": 0.5})
        context.train.report_validation_metrics(9, {"loss": 0.75})
        with context.checkpoint.store_path({"steps_completed": 7}) as (directory, storage_id):
            (directory / "weights").write_text("1")
        (context.train.get_tensorboard_path() / "plot.png").write_text("png")
        context.checkpoint.delete(storage_id)
        if error:
            raise error
    sent = [argument for name, argument, _ in calls if isinstance(argument, events.Event)]
    begin = ["experiment_started", "trial_started", "worker_started"]
    end = ["worker_finished", "trial_finished", "experiment_finished"]
    assert [event.name for event in sent if event.name != "artifacts_stored"] == [
        *begin, "metrics_reported", "metrics_reported", "checkpoint_saved", "checkpoint_deleted", *end
    ]  # fmt: skip
    found = {event.name: event for event in sent}
    assert (found["trial_finished"].state, found["experiment_finished"].state) == (state, state)
    assert {found[name].error for name in end} == {described}
    assert (found["trial_finished"].steps_completed, found["trial_finished"].best) == (9, 0.5)
    assert (found["experiment_finished"].best_trial_id, found["experiment_finished"].best) == (
        context.trial.trial_id,
        0.5,
    )
    assert found["checkpoint_saved"].location == (tmp_path / "stored" / storage_id).as_uri()
    assert found["checkpoint_deleted"].experiment_id == context.trial.experiment_id
    stored = [event for event in sent if isinstance(event, events.ArtifactsStored)]
    assert any(path.endswith("/plot.png") for event in stored for path in event.resources)


def test_observers_fetch_the_metrics_that_a_resumed_script_does_not_report_again(tmp_path: Path) -> None:
    config = {"observers": {"probe": {}}}
    with suppress(ValueError), core.init(config=config, checkpoint_storage=tmp_path / "stored") as first:
        first.train.report_training_metrics(1, {"loss": 0.5})
        with first.checkpoint.store_path({"steps_completed": 1}):
            pass
        first.train.report_training_metrics(2, {"loss": 0.25})
        raise ValueError
    with core.init(config=config, resume=first.trial.experiment_id) as second:
        second.train.report_validation_metrics(2, {"loss": 0.75})
        second.train._close()
        opened = [argument for name, argument, _ in calls if name == "open"][-1]
        fetched = [(each.run_id, each.group, each.steps_completed) for each in opened.fetch_metrics()]
    assert fetched == [(1, "training", 1), (2, "validation", 2)]


def test_a_script_that_stops_on_request_is_preempted(tmp_path: Path) -> None:
    with core.init(config={"observers": {"probe": {}}}) as context:
        context.preempt._request("signal")
        assert context.preempt.should_preempt() and context.preempt.should_preempt()
    sent = {argument.name: argument for _, argument, _ in calls if isinstance(argument, events.Event)}
    assert names().count("preemption_requested") == 1
    assert (sent["preemption_requested"].reason, sent["worker_finished"].preempted) == ("signal", True)
    assert sent["experiment_finished"].state is State.CANCELED


def test_commands_send_events_to_the_observers_of_the_experiment(tmp_path: Path) -> None:
    config = {"observers": {"probe": {}}}
    with (
        core.init(config=config, checkpoint_storage=tmp_path / "stored") as context,
        context.checkpoint.store_path({"steps_completed": 7}) as (directory, storage_id),
    ):
        (directory / "weights").write_text("1")
    calls.clear()
    with open_store() as store:
        store.create_model("digits")
        version = store.add_model_version("digits", storage_id)
        with ClientEvents(store) as client:
            client.model_version_registered("digits", version)
            client.checkpoint_deleted(store.checkpoint(storage_id))
        cluster_id = store.cluster_id
    assert names("flush") == ["made", "open", "model_version_registered", "checkpoint_deleted", "close"]
    opened, registered = calls[1][1], next(each for name, each, _ in calls if name == "model_version_registered")
    assert (opened.place, opened.cluster_id, opened.trial_id) == ("client", cluster_id, None)
    assert (registered.model, registered.version, registered.trial_id, registered.run_id) == ("digits", 1, 1, 1)
    assert registered.location == (tmp_path / "stored" / storage_id).as_uri()
    opened.fetch_files(storage_id, tmp_path / "fetched")
    assert (tmp_path / "fetched" / "weights").read_text() == "1"


def test_observers_fetch_single_files(tmp_path: Path) -> None:
    manager = DirectoryStorage(DirectoryConfig(container_path=tmp_path / "stored"))
    for name in ("a", "sub/b"):
        (tmp_path / "file").write_text(name)
        manager.put("shared", name, tmp_path / "file")
    fetch_files = make_fetch_files(lambda: manager)
    fetch_files("shared", tmp_path / "fetched", ["sub/b"])
    assert [path.read_text() for path in (tmp_path / "fetched").rglob("*") if path.is_file()] == ["sub/b"]
    with pytest.raises(CheckpointNotFound, match="'c' of shared is not stored"):
        fetch_files("shared", tmp_path / "fetched", ["c"])
    with pytest.raises(StorageError, match="not a path inside"):
        fetch_files("shared", tmp_path / "fetched", ["../a"])
    with pytest.raises(CheckpointNotFound):
        fetch_files("unknown", tmp_path / "fetched")


def test_every_event_has_a_hook_and_a_method() -> None:
    from det_core import hookspecs
    from det_core.interfaces.observer import Observer

    found = {value.name for value in vars(events).values() if isinstance(value, type) and hasattr(value, "name")}
    assert {event.name for event in events.EVENTS} == found
    assert [name for name in found if not hasattr(Observer, name) or not hasattr(hookspecs, f"det_{name}")] == []


def test_states_are_text_in_any_form() -> None:
    assert f"{State.COMPLETED} {State.ERROR!s}" == "COMPLETED ERROR"
    assert State.COMPLETED == "COMPLETED"
