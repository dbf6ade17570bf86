"""Launcher whose calls end in time and return what the interface promises, whatever the launcher behind it does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from det_core.errors import LaunchDelayed, LaunchError
from det_core.interfaces.launcher import Allocation, Exit, Launcher, LaunchRequest, Status

_CALL_SECONDS = 300.0
"""Seconds that a call may take beyond its own time limit. A start unpacks code, and an end waits for the last lines."""
_DEVICES = ("cpu", "cuda")
_STREAMS = ("stdout", "stderr", "det")
_MAX_RANK = (1 << 31) - 1
"""Largest number that all databases can store."""


class LauncherDefect(LaunchDelayed):
    """Launcher that does not do what its interface promises. The cause of the error is what the launcher raised."""


class CheckedLauncher(Launcher):
    """Launcher that makes the calls of another one in threads of their own, so that none of them holds up its caller.

    It opens the other one before the first launch, so that an error of that is an error of the launch.

    Args:
        launcher: the other launcher.
        key: name of the experiment, as for `Launcher.open`.
        keep, renew_lease: as for `Launcher.open`. Unused if the launcher does not `adopts`.

    Raises:
        LaunchError: its number of slots cannot be used.

    All methods raise `LaunchError` as the other launcher does. Any other exception of it, an answer that the interface
    does not allow, and a call that does not end are a `LauncherDefect`.
    """

    def __init__(
        self,
        launcher: Launcher,
        key: str,
        keep: Collection[str] = (),
        renew_lease: Callable[[], None] = lambda: None,
    ) -> None:
        self._launcher = launcher
        self._key = key
        self._adoption = (keep, renew_lease) if launcher.adopts else ()
        self.adopts = launcher.adopts
        self._opening = threading.Lock()
        self._is_open = False
        self.slots = launcher.slots
        if not (self.slots is None or (isinstance(self.slots, int) and self.slots > 0)):
            raise LaunchError(
                f"{type(launcher).__name__}.slots is {self.slots!r:.200}, expected the number of slots, or None; "
                "report this to its author"
            )

    def device(self) -> Literal["cpu", "cuda"]:
        with closing(_CallThread()) as thread:
            device: Literal["cpu", "cuda"] = thread.call(self._launcher.device)
        if device not in _DEVICES:
            raise LauncherDefect(f"device() of the launcher returned {device!r:.200}, expected one of {_DEVICES}")
        return device

    def rehearsal(self, slots: int) -> tuple[Launcher, int]:
        with closing(_CallThread()) as thread:
            answer = thread.call(self._launcher.rehearsal, slots)
        match answer:
            case (Launcher() as launcher, int() as count):
                return CheckedLauncher(launcher, self._key), count
        raise LauncherDefect(
            f"rehearsal() of the launcher returned {answer!r:.200}, expected a launcher and a number of slots"
        )

    def available_slots(self, request: LaunchRequest) -> int | None:
        with closing(_CallThread()) as thread:
            count: int | None = thread.call(self._launcher.available_slots, request, expected=(int, type(None)))
        return count

    def remove_leftovers(self) -> None:
        """Open the launcher without a launch, so that it removes what earlier runners have left."""
        with closing(_CallThread()) as thread:
            self._open_once(thread)

    def close(self) -> None:
        if self._is_open:
            with closing(_CallThread()) as thread:
                thread.call(self._launcher.close)

    def start(self, request: LaunchRequest) -> Allocation:
        return self._launch(self._launcher.start, request)

    def adopt(self, request: LaunchRequest, number: float) -> Allocation:
        return self._launch(self._launcher.adopt, request, number)

    def _launch(self, method: Callable[..., Allocation], request: LaunchRequest, *args: float) -> Allocation:
        thread = _CallThread()
        try:
            self._open_once(thread)
            request = replace(request, log=partial(_log_checked, request.log))
            launch = thread.call(method, request, *args, expected=Allocation, late=_end_late_launch)
        except BaseException:
            thread.close()
            raise
        return _CheckedAllocation(launch, thread)

    def _open_once(self, thread: _CallThread) -> None:
        with self._opening:
            if not self._is_open:
                thread.call(self._launcher.open, self._key, *self._adoption)
                self._is_open = True


class _CheckedAllocation(Allocation):
    """Launch whose calls are those of another one."""

    def __init__(self, launch: Allocation, thread: _CallThread) -> None:
        self._launch = launch
        self._thread = thread

    def wait(self, timeout: float) -> Exit | None:
        end: Exit | None = self._thread.call(self._launch.wait, timeout, expected=(Exit, type(None)), limit=timeout)
        return end

    def status(self) -> Status:
        status: Status = self._thread.call(self._launch.status, expected=Status)
        return status

    def preempt(self) -> None:
        self._thread.call(self._launch.preempt)

    def kill(self) -> None:
        self._thread.call(self._launch.kill)

    def hand_over(self) -> None:
        self._thread.call(self._launch.hand_over)

    def close(self) -> None:
        try:
            self._thread.call(self._launch.close)
        finally:
            self._thread.close()


_Calls = queue.SimpleQueue["tuple[Callable[[], Any], Future[Any]] | None"]


class _CallThread:
    """Thread that makes the calls of one launch. One that hangs keeps the thread, and the next one gets another."""

    def __init__(self) -> None:
        self._calls: _Calls | None = None

    def call(
        self,
        method: Callable[..., Any],
        *args: Any,
        expected: type | tuple[type, ...] = object,
        limit: float = 0.0,
        late: Callable[[Future[Any]], None] = lambda _: None,
    ) -> Any:
        """Call a method, and return what it returns.

        Args:
            method: the method.
            args: its arguments.
            expected: types of which one must be that of the answer.
            limit: its own time limit in seconds.
            late: function that gets the answer if it comes after the time limit.

        Raises:
            LaunchError: the method raised it.
            LaunchDelayed: there is no free thread.
            LauncherDefect: the method raised something else, returned something else, or did not return in time.
        """
        calls = self._calls = self._calls or _start_thread()
        answer: Future[Any] = Future()
        calls.put((partial(method, *args), answer))
        name = f"{method.__name__}() of the launcher"
        if not wait([answer], limit + _CALL_SECONDS).done:
            self.close()
            answer.add_done_callback(late)
            raise LauncherDefect(f"{name} has not returned within {limit + _CALL_SECONDS:.0f} s")
        try:
            result = answer.result()
        except LaunchError:
            raise
        except BaseException as error:
            raise LauncherDefect(f"the launcher raised {type(error).__name__}: {error}") from error
        if not isinstance(result, expected):
            raise LauncherDefect(f"{name} returned {result!r:.200}, expected {expected}")
        return result

    def close(self) -> None:
        """End the thread after its present call."""
        if self._calls:
            self._calls.put(None)
            self._calls = None


def _start_thread() -> _Calls:
    """Start a thread, and return the queue of the calls that it makes."""
    calls: _Calls = queue.SimpleQueue()
    try:
        threading.Thread(target=_make_calls, args=[calls], name="det-launch", daemon=True).start()
    except RuntimeError as error:
        raise LaunchDelayed(f"it cannot have a thread: {error}") from error
    return calls


def _make_calls(calls: _Calls) -> None:
    while one := calls.get():
        call, answer = one
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001  (the caller raises it)
            answer.set_exception(error)


def _end_late_launch(started: Future[Allocation]) -> None:
    """End a launch for which nobody waits any more."""
    if started.exception() is None:
        launch = started.result()
        launch.kill()
        launch.close()


def _log_checked(log: Callable[[int | None, str, str], None], rank: int | None, stream: str, text: str) -> None:
    """Log a line, or raise an error in the launcher that has called this, because the log would fail elsewhere."""
    if not (rank is None or (isinstance(rank, int) and 0 <= rank <= _MAX_RANK)):
        raise TypeError(f"expected a rank or None for a line of the log, got {rank!r:.200}")
    if stream not in _STREAMS or not isinstance(text, str):
        raise TypeError(
            f"expected one of {_STREAMS} and a line of text for the log, got {stream!r:.200}, {text!r:.200}"
        )
    log(rank, stream, text)
