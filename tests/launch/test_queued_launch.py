"""Launches that wait for slots, with other launches that start no processes."""

from __future__ import annotations

import errno
import fcntl
import getpass
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import WITHDRAWN, Allocation, Cause, Exit, LaunchRequest, Phase, Status
from det_core.launch import _slot_tickets, queued_launch, trial_lock
from det_core.launch._slot_directory import SlotDirectory
from det_core.launch.machine_slots import list_slots
from det_core.launch.queued_launch import QueuedLaunch
from det_core.launch.trial_lock import TrialLock

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


class Launch(Allocation):
    """Launch that records what it is asked, and runs until it is stopped."""

    def __init__(self, slots: Sequence[int], descriptors: Sequence[int], problem: Exception | None = None) -> None:
        if problem:
            raise problem
        self.slots, self.calls = list(slots), list[str]()
        self._kept = [os.dup(descriptor) for descriptor in descriptors]

    def wait(self, timeout: float) -> Exit | None:
        return None if self._kept else Exit(code=7)

    def status(self) -> Status:
        return Status(phase=Phase.RUNNING)

    def preempt(self) -> None:
        self.calls.append("preempt")

    def kill(self) -> None:
        self.calls.append("kill")
        while self._kept:
            os.close(self._kept.pop())

    def close(self) -> None:
        self.calls.append("close")


Start = Callable[..., QueuedLaunch]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, det_home: Path) -> Iterator[Start]:
    monkeypatch.setattr(queued_launch, "_POLL_EVERY", 0.01)
    monkeypatch.setattr(queued_launch, "_EXPLAIN_EVERY", 0.0)
    with ExitStack() as ending:

        def start(key: str, slots: int = 1, *, size: int = 1, problem: Exception | None = None, **request: Any) -> Any:
            one = LaunchRequest(
                key=key,
                argv=["true"],
                code=b"",
                info={"cluster.json": {"cluster_id": "c"}, "trial.json": {"trial_id": 7, "experiment_id": 3}},
                slots=slots,
                log=lambda *_: None,
                call=lambda *_: b"",
                **request,
            )
            names = [f"cpu-{index}" for index in range(size)]
            made = QueuedLaunch(one, names, lambda *given: Launch(*given, problem), hint=", or buy {slots}")
            ending.callback(made.close)
            ending.callback(made.kill)
            return made

        yield start


def test_a_launch_with_slots_is_the_other_launch(start: Start) -> None:
    launch = start("one", 2, size=3)
    inner = launch._launch
    assert isinstance(inner, Launch)
    assert (inner.slots, launch.status().phase, launch.wait(0)) == ([0, 1], Phase.RUNNING, None)
    launch.preempt()
    launch.kill()
    assert (inner.calls, launch.wait(0)) == (["preempt", "kill"], Exit(code=7))
    launch.close()
    assert inner.calls == ["preempt", "kill", "close"]


def test_a_launch_waits_until_the_processes_with_its_slot_have_ended(start: Start) -> None:
    first, second = start("first"), start("second")
    assert second.wait(0.03) is None
    holder = f"experiment 3 of {getpass.getuser()}, trial 7"
    message = f"waiting for a slot: slot cpu-0 is held by {holder}; wait for it, or buy 2; see `det slots`"
    assert second.status() == Status(phase=Phase.QUEUED, message=message)
    first.close()  # its processes run on
    assert second.wait(0.03) is None
    assert second.status().phase is Phase.QUEUED
    first.kill()
    assert second.wait(0.03) is None
    assert second.status().phase is Phase.RUNNING


def test_the_most_urgent_launch_goes_first_and_then_the_oldest(start: Start) -> None:
    first = start("first")
    waiting = {
        name: start(name, priority=priority, submitted=NOW - timedelta(hours=age))
        for name, priority, age in (("last", 60, 9), ("second", 42, 1), ("first of those", 42, 5), ("urgent", 7, 0))
    }
    started = []
    first.kill()
    first.close()
    while waiting:
        (name,) = [name for name, one in waiting.items() if one.wait(0) is None and one.status().phase is Phase.RUNNING]
        started.append(name)
        one = waiting.pop(name)
        one.kill()
        one.close()
    assert started == ["urgent", "first of those", "second", "last"]


@pytest.mark.parametrize("how", ["preempt", "kill"])
def test_a_launch_that_waits_is_withdrawn(start: Start, how: str) -> None:
    first, second, third = start("first"), start("second"), start("third")
    getattr(second, how)()
    assert second.wait(60) == second.wait(60) == WITHDRAWN
    second.close()
    first.kill()
    first.close()
    assert third.wait(0.03) is None
    assert (third.status().phase, second.wait(0)) == (Phase.RUNNING, WITHDRAWN)
    assert list_slots([])[1] == []


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (LaunchError("no such program"), LaunchError),
        (OSError(errno.ENOSPC, "no disk"), LaunchDelayed),
        (KeyError("a defect"), KeyError),
    ],
    ids=["launch", "system", "defect"],
)
def test_a_launch_that_cannot_start_holds_nothing(start: Start, problem: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=str(problem.args[-1])):
        start("one", problem=problem)
    assert start("one").status().phase is Phase.RUNNING


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (LaunchError("no such program"), "no such program"),
        (OSError(errno.ENOSPC, "no disk"), f"cannot start the trial: [Errno {errno.ENOSPC}] no disk"),
    ],
)
def test_a_start_after_a_wait_that_fails_is_the_end(start: Start, problem: Exception, message: str) -> None:
    first, second = start("first"), start("second", problem=problem)
    first.kill()
    first.close()
    assert second.wait(60) == Exit(code=1, cause=Cause.NOT_STARTED, message=message)
    second.close()
    assert start("third").status().phase is Phase.RUNNING


def test_more_slots_than_exist_are_refused_with_a_hint(start: Start) -> None:
    with pytest.raises(LaunchError, match="needs 2 slots, but the launcher has 1; lower .*, or buy 2"):
        start("one", 2)


def test_a_launch_waits_for_processes_of_its_earlier_run(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may hold the slots, too."""
    killed: list[Path] = []
    monkeypatch.setattr(trial_lock, "kill_lock_holders", killed.append)
    first = start("same", size=2)
    second = start("same", size=2)
    assert second.wait(0.03) is None
    assert second.status() == Status(phase=Phase.QUEUED, message="processes of its earlier run are still alive")
    first.kill()
    assert second.wait(0.03) is None
    assert (second.status().phase, killed) == (Phase.RUNNING, [])


def test_holders_of_the_lock_of_a_trial_are_killed_and_then_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed: list[Path] = []
    monkeypatch.setattr(trial_lock, "kill_lock_holders", killed.append)
    holder = TrialLock("k")
    assert holder.try_to_lock()
    with closing(holder), closing(TrialLock("k")) as lock:
        assert not lock.try_to_lock()
        assert killed == []
        monkeypatch.setattr(trial_lock, "_GRACE", 0.0)
        assert not lock.try_to_lock()
        assert killed == [lock._path]
        monkeypatch.setattr(trial_lock, "_LOCK_SECONDS", 0.0)
        with pytest.raises(LaunchDelayed, match="processes of an earlier run of k are still alive after 0 s; .*fuser"):
            lock.try_to_lock()
        fcntl.flock(holder.descriptor, fcntl.LOCK_UN)
        assert lock.try_to_lock()
        lock.hand_over()
        assert lock.descriptor == -1


def test_a_lock_follows_the_directory_that_another_process_has_created_at_the_same_time(slots_directory: Path) -> None:
    """A directory that is still empty is replaced by a renamed one."""
    with closing(TrialLock("k")) as lock:
        (slots_directory.parent / "other").mkdir(mode=0o1777)
        (slots_directory.parent / "other").rename(slots_directory)
        assert lock.try_to_lock()
        assert [path.name for path in slots_directory.iterdir()] == ["lock-k"]


@pytest.mark.parametrize("lives_on", [False, True])
def test_the_lock_of_a_trial_leaves_no_file_behind(slots_directory: Path, lives_on: bool) -> None:
    """The last one that holds it removes its file, which is therefore never removed under a process that waits."""
    lock = TrialLock("k")
    assert lock.try_to_lock()
    inherited = os.dup(lock.descriptor)
    with closing(TrialLock("k")) as waiting:
        if not lives_on:
            os.close(inherited)
        lock.close()
        assert [path.name for path in slots_directory.iterdir()] == (["lock-k"] if lives_on else [])
        assert waiting.try_to_lock() is not lives_on
    if lives_on:
        os.close(inherited)
        TrialLock("k").close()
    assert list(slots_directory.iterdir()) == []


@pytest.mark.parametrize(("late", "responds"), [(0.5, True), (-0.5, True), (1.0, False), (1.5, False)])
def test_a_ticket_that_is_not_renewed_does_not_respond(
    start: Start, slots_directory: Path, monkeypatch: pytest.MonkeyPatch, late: float, responds: bool
) -> None:
    holder, _waiting = start("holder"), start("waiting")
    del holder
    (ticket,) = [path for path in slots_directory.glob("ticket-*") if b'"held": []' in path.read_bytes()]
    os.utime(ticket, (1 << 20, 1 << 20))
    monkeypatch.setattr("time.time", lambda: (1 << 20) + late * _slot_tickets.RESPONSE_SECONDS)
    with closing(SlotDirectory()) as directory:
        found = {one.name: one.responding for one in _slot_tickets.read_tickets(directory)}
    assert found.pop(ticket.name) is responds
    assert list(found.values()) == [True]  # that of the holder
