"""Checks of what a launcher does, in addition to those of whole searches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal
from unittest import mock

import pytest

from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import Allocation, Exit, Launcher, LaunchRequest, Phase, Status
from det_core.launch import _checked_launcher
from det_core.launch._checked_launcher import CheckedLauncher, LauncherDefect

from ..waiting import wait_for

ENDED = Exit(code=0)


class Launch(Allocation):
    """Launch that has ended, and notes what it is asked to do."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def wait(self, timeout: float) -> Exit | None:
        return ENDED

    def status(self) -> Status:
        return Status(phase=Phase.RUNNING)

    def preempt(self) -> None:
        self.calls.append("preempt")

    def kill(self) -> None:
        self.calls.append("kill")

    def close(self) -> None:
        self.calls.append("close")


class OneLauncher(Launcher):
    """Launcher whose start is given."""

    def __init__(self, start: Callable[[LaunchRequest], Any], slots: Any = 1) -> None:
        self._start, self.slots = start, slots

    def device(self) -> Literal["cpu", "cuda"]:
        return "cpu"

    def start(self, request: LaunchRequest) -> Allocation:
        launch: Allocation = self._start(request)
        return launch


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    wait_for(lambda: not [thread for thread in threading.enumerate() if thread.name == "det-launch"])


def request(log: Callable[..., None] = lambda *_: None) -> LaunchRequest:
    return LaunchRequest(key="k", argv=[], code=b"", info={}, slots=1, log=log, call=lambda *_: b"")


def test_calls_and_answers_are_passed_on() -> None:
    launch = Launch()
    checked = CheckedLauncher(OneLauncher(lambda request: launch, slots=3), "k")
    allocation = checked.start(request())
    assert (checked.slots, checked.device(), allocation.wait(0), allocation.status().phase) == (
        3,
        "cpu",
        ENDED,
        Phase.RUNNING,
    )
    for method in ("preempt", "kill", "close"):
        getattr(allocation, method)()
    assert launch.calls == ["preempt", "kill", "close"]


class Opened(OneLauncher):
    """Launcher that cannot be opened at first, and notes its calls."""

    def __init__(self) -> None:
        super().__init__(self._note_start)
        self.calls: list[str] = []

    def open(self, key: str) -> None:
        self.calls.append(f"open {key}")
        if len(self.calls) == 1:
            raise LaunchDelayed("no engine")

    def close(self) -> None:
        self.calls.append("close")

    def _note_start(self, request: LaunchRequest) -> Allocation:
        self.calls.append("start")
        return Launch()


def test_a_launcher_is_opened_before_its_first_launch_and_closed_if_it_was_opened() -> None:
    launcher = Opened()
    checked = CheckedLauncher(launcher, "c-exp-1")
    with pytest.raises(LaunchDelayed, match="no engine"):
        checked.start(request())
    checked.close()
    assert launcher.calls == ["open c-exp-1"]
    for _ in range(2):
        checked.start(request()).close()
    checked.close()
    assert launcher.calls[1:] == ["open c-exp-1", "start", "start", "close"]


def test_a_launcher_that_adopts_gets_what_it_keeps_and_how_to_renew_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher, opened = OneLauncher(lambda request: Launch()), list[Any]()
    monkeypatch.setattr(launcher, "adopts", True)
    monkeypatch.setattr(launcher, "open", lambda *args: opened.append(args))
    checked = CheckedLauncher(launcher, "c-exp-1", ["c-exp-1-trial-1"], renew := lambda: None)
    checked.start(request()).close()
    assert opened == [("c-exp-1", ["c-exp-1-trial-1"], renew)]


@pytest.mark.parametrize("error", [LaunchError("never"), LaunchDelayed("later")])
def test_documented_errors_are_passed_on(error: Exception) -> None:
    def start(request: LaunchRequest) -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        CheckedLauncher(OneLauncher(start), "k").start(request())


def test_a_time_limit_of_the_launcher_is_its_own_error() -> None:
    def start(request: LaunchRequest) -> None:
        raise TimeoutError("timed out")

    with pytest.raises(LauncherDefect, match="the launcher raised TimeoutError: timed out"):
        CheckedLauncher(OneLauncher(start), "k").start(request())


def test_a_launch_that_comes_too_late_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checked_launcher, "_CALL_SECONDS", 0.05)
    released, launch = threading.Event(), Launch()

    def start(request: LaunchRequest) -> Launch:
        released.wait(60)
        return launch

    with pytest.raises(LauncherDefect, match=r"^start\(\) of the launcher has not returned within 0 s$"):
        CheckedLauncher(OneLauncher(start), "k").start(request())
    released.set()
    wait_for(lambda: launch.calls == ["kill", "close"])


def test_without_a_free_thread_a_launch_is_delayed_and_no_call_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checked_launcher, "_CALL_SECONDS", 0.05)
    released, launch = threading.Event(), Launch()
    launch.wait = lambda timeout: released.wait(60) and None  # type: ignore[method-assign, assignment]
    allocation = CheckedLauncher(OneLauncher(lambda request: launch), "k").start(request())
    with pytest.raises(LauncherDefect, match="has not returned"):
        allocation.wait(0)
    monkeypatch.setattr(threading.Thread, "start", mock.Mock(side_effect=RuntimeError("can't start new thread")))
    for call in (allocation.kill, allocation.close):
        with pytest.raises(LaunchDelayed, match=r"^it cannot have a thread: can't start new thread$"):
            call()
    released.set()


@pytest.mark.parametrize("answer", [(), (None, 1), (OneLauncher(Launch), "one"), None])
def test_a_rehearsal_that_cannot_be_used_is_an_error_of_the_launcher(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OneLauncher, "rehearsal", lambda self, slots: answer)
    with pytest.raises(LauncherDefect, match=r"\(\) of the launcher returned .*, expected"):
        CheckedLauncher(OneLauncher(lambda request: Launch()), "k").rehearsal(1)


@pytest.mark.parametrize("slots", ["four", 0, -1, 2.0])
def test_a_number_of_slots_that_cannot_be_used_is_refused(slots: Any) -> None:
    with pytest.raises(LaunchError, match=rf"OneLauncher.slots is {slots!r}, expected the number of slots, or None"):
        CheckedLauncher(OneLauncher(lambda request: Launch(), slots), "k")


@pytest.mark.parametrize(
    "line", [("0", "stdout", "x"), (-1, "stdout", "x"), (1 << 31, "stdout", "x"), (0, "stdio", "x"), (0, "det", b"x")]
)
def test_a_line_that_no_log_can_store_is_an_error_of_the_launcher(line: Any) -> None:
    lines: list[Any] = []

    def start(request: LaunchRequest) -> None:
        request.log(None, "stdout", "good")
        request.log(*line)

    with pytest.raises(LauncherDefect, match="the launcher raised TypeError: expected .* log, got"):
        CheckedLauncher(OneLauncher(start), "k").start(request(lambda *line: lines.append(line)))
    assert lines == [(None, "stdout", "good")]
