"""Background saves of checkpoints, with the real loop and a real tracking store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import det_core as det
from det_core.config import Length
from det_core.core import Context
from det_core.interfaces.framework import Metrics, TrialAdapter
from det_core.trial import TrainingPlan, TrialContext, TrialLoop

from ..forked_child import ending_children, fork_before

LENGTH = 20


class Counting(TrialAdapter):
    """Adapter that counts batches. ``on_write(path)`` runs whenever a checkpoint is written."""

    batches_per_epoch = 5
    records_per_batch = 1
    writes_behind = True

    def __init__(
        self, on_write: Callable[[Path], None] = lambda _: None, on_batch: Callable[[int], None] | None = None
    ):
        self.on_write, self.on_batch = on_write, on_batch or (lambda _: None)
        self.count = 0
        self.events: list[Any] = []

    def train(self, batches: int, stop: Callable[[], bool]) -> Sequence[Metrics]:
        rows = []
        for _ in range(batches):
            self.count += 1
            self.on_batch(self.count)
            rows.append({"loss": float(self.count)})
        return rows

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        return {"validation_loss": 1.0 / self.count}

    def snapshot(self) -> Callable[[Path], None]:
        count = self.count
        self.events.append(("snapshot", count))

        def write(path: Path) -> None:
            self.on_write(path)
            (path / "count").write_text(str(count))

        return write

    def load(self, path: Path, *, batches_trained: int) -> None:
        self.count = int((path / "count").read_text())
        self.events.append(("load", batches_trained))

    def saved(self, storage_id: str) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.events.append(("saved", self.count))

    def close(self) -> None:
        self.events.append("close")


@pytest.fixture
def core(det_home: Path) -> Iterator[Context]:
    with det.core.init() as core:
        yield core


def loop(core: Context, adapter: TrialAdapter, latest: str | None = None, **keys: Any) -> TrialLoop:
    every = {"reporting": Length.parse(2), "checkpoint": Length.parse(5), "checkpoint_policy": "none"}
    plan = TrainingPlan(length=Length.parse(LENGTH), **{**every, **keys})
    return TrialLoop(adapter, core, TrialContext.from_core(core), plan=plan, latest=latest)


def saved(core: Context) -> list[int | None]:
    return [row.steps_completed for row in core._store.checkpoints(trial_id=core.trial.trial_id)]


def test_training_continues_while_a_checkpoint_is_written_and_the_next_save_waits(core: Context) -> None:
    written, reached = threading.Event(), threading.Event()

    def on_write(_: Path) -> None:
        assert reached.wait(60), "training did not continue"
        written.set()

    def on_batch(count: int) -> None:
        if count == 10:  # the batch before the next checkpoint
            assert not written.is_set()
            reached.set()

    adapter = Counting(on_write, on_batch)
    loop(core, adapter).run()
    assert saved(core) == [5, 10, 15, 20]
    assert [event for event in adapter.events if event[0] == "snapshot"] == [("snapshot", n) for n in (5, 10, 15, 20)]
    assert len([event for event in adapter.events if event[0] == "saved"]) == 4
    assert adapter.events[-2:] == [("saved", 20), "close"], "the loop waits for the last save"
    first = adapter.events.index(("snapshot", 10))
    assert adapter.events[first - 1] == ("saved", 10), "one save at a time"


def test_an_adapter_may_require_saves_in_the_main_thread(core: Context) -> None:
    threads = set()
    adapter = Counting(lambda _: threads.add(threading.current_thread()))
    adapter.writes_behind = False  # type: ignore[misc]
    loop(core, adapter).run()
    assert threads == {threading.main_thread()}


def test_an_error_of_the_writer_ends_training_and_leaves_no_checkpoint(core: Context) -> None:
    def full(path: Path) -> None:
        (path / "half").write_text("half")
        raise OSError("no space left")

    adapter = Counting(full)
    with pytest.raises(OSError, match="no space left"):
        loop(core, adapter).run()
    assert adapter.count < LENGTH
    assert adapter.events[-1] == "close"
    assert [row.state.name for row in core._store.checkpoints(trial_id=core.trial.trial_id)] in ([], ["DELETED"])


def test_after_an_error_in_training_the_loop_waits_for_the_previous_checkpoint(core: Context) -> None:
    release = threading.Event()

    def on_batch(count: int) -> None:
        if count == 7:
            threading.Timer(0.2, release.set).start()
            raise ArithmeticError("batch 7")

    adapter = Counting(lambda _: release.wait(60), on_batch)
    with pytest.raises(ArithmeticError, match="batch 7"):
        loop(core, adapter).run()
    assert saved(core) == [5]
    assert adapter.events[-2:] == [("saved", 7), "close"]


def test_a_forked_child_that_leaves_the_training_neither_waits_nor_closes(core: Context, tmp_path: Path) -> None:
    """The thread that writes the checkpoint, and what the adapter holds, belong to the parent."""
    forked = threading.Event()
    closed = tmp_path / "closed"
    closed.mkdir()

    def on_batch(count: int) -> None:
        if count == 7:
            if fork_before():
                raise ArithmeticError
            forked.set()

    class Closing(Counting):
        def close(self) -> None:
            (closed / str(os.getpid())).touch()

    with ending_children():
        loop(core, Closing(lambda _: forked.wait(60), on_batch)).run()
    assert saved(core) == [5, 10, 15, 20]
    assert [path.name for path in closed.iterdir()] == [str(os.getpid())]


def test_a_script_continues_from_the_checkpoint_of_another_script(core: Context) -> None:
    def on_batch(count: int) -> None:
        if count == 13:
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        loop(core, Counting(on_batch=on_batch)).run()
    latest = core._store.checkpoints(trial_id=core.trial.trial_id)[-1].uuid
    with det.core.init() as second:
        adapter = Counting()
        loop(second, adapter, latest).run()
        assert adapter.events[0] == ("load", 10)
        assert adapter.count == LENGTH
        assert saved(second) == [15, 20]
