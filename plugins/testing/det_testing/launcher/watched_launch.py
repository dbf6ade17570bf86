"""Launch that a thread watches as the runner does."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

from det_core.interfaces.launcher import Allocation, Cause, Exit, Launcher, LaunchRequest, Status

T = TypeVar("T")

REPORT = "REPORT "
"""Beginning of the lines with which scripts report values."""
PRELUDE = f"""import json, os, sys, time
def report(value):
    print({REPORT!r} + json.dumps(value), flush=True)
"""
"""First lines of all scripts."""
TICK = 0.1
"""Seconds for which each call of `Allocation.wait` waits."""


class Line(NamedTuple):
    """Line that a launcher has delivered."""

    rank: int | None
    """Rank of the worker, or None if it is unknown."""
    stream: str
    """``stdout``, ``stderr``, or ``det`` for lines of the launcher."""
    text: str
    """Line without its end."""


class OneThreadAllocation(Allocation):
    """Allocation whose callers wait for each other in order, because one thread at a time may use an allocation."""

    def __init__(self, inner: Allocation) -> None:
        self._inner = inner
        self._next = threading.Lock()
        self._in_use = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[Allocation]:
        """Wait until no other thread uses the allocation, and return it."""
        with self._next:
            self._in_use.acquire()
        try:
            yield self._inner
        finally:
            self._in_use.release()

    def wait(self, timeout: float) -> Exit | None:
        with self.turn() as inner:
            return inner.wait(timeout)

    def status(self) -> Status:
        with self.turn() as inner:
            return inner.status()

    def preempt(self) -> None:
        with self.turn() as inner:
            inner.preempt()

    def kill(self) -> None:
        with self.turn() as inner:
            inner.kill()

    def hand_over(self) -> None:
        with self.turn() as inner:
            inner.hand_over()

    def close(self) -> None:
        with self.turn() as inner:
            inner.close()


class WatchedLaunch:
    """One launch, which is started at once, and closed as soon as it has ended.

    Args:
        launcher: the launcher.
        limit: time limit of everything in seconds.
        call: stands in for the tracking store, as `LaunchRequest.call`.
        adopted_as: number with which the launch is adopted, as for `Launcher.adopt`, or 0 to start it.
        watched: whether there is a thread. Otherwise, the caller waits for the end and closes the launch.
        request: fields of the launch request, except for ``log`` and ``call``.

    Attributes:
        allocation: the launch.
        lines: the lines delivered so far.
        statuses: the distinct states of the launch, in order.
        slowest: longest time that a call of ``status`` or ``wait`` took beyond its time limit, in seconds.
        closed: whether the launch has been closed.
    """

    def __init__(
        self,
        launcher: Launcher,
        limit: float,
        *,
        call: Callable[[str, bytes], bytes] | None = None,
        adopted_as: float = 0.0,
        watched: bool = True,
        **request: Any,
    ) -> None:
        self.lines: list[Line] = []
        self.statuses: list[Status] = []
        self.slowest = 0.0
        self.closed = False
        self._is_handed_over = False
        self._limit = limit
        self._end: Exit | None = None
        self._problem: Exception | None = None
        self.request = LaunchRequest(log=self._log, call=call or refuse_calls, **request)
        self.allocation = OneThreadAllocation(start_within(limit, launcher, self.request, adopted_as))
        self._thread = threading.Thread(target=self._watch, name="watch-launch", daemon=True)
        if watched:
            self._thread.start()

    def ended(self) -> Exit:
        """Wait until the launch has ended and is closed, and return its end."""
        self._thread.join(self._limit)
        if self._problem:
            raise self._problem
        assert self._end and self.closed, f"the launch did not end within {self._limit:g} s; {self.describe()}"
        return self._end

    def require_code(self, code: int = 0) -> None:
        """Wait for the end of the launch, and fail with its description unless the command exited with this code."""
        end = self.ended()
        is_expected = (end.code, end.cause) == (code, Cause.WORKERS)
        assert is_expected, f"expected that the command exits with code {code}; {self.describe()}"

    def wait_until(self, condition: Callable[[], T], what: str) -> T:
        """Wait until a condition is true, and return its value. Fail if the launch ends before.

        Args:
            condition: the condition.
            what: what is waited for, for the error.
        """
        end = time.monotonic() + self._limit
        while not (value := condition()):
            is_over = not self._thread.is_alive()
            if is_over and (value := condition()):
                break
            assert not is_over, f"the launch ended without {what}; {self.describe()}"
            assert time.monotonic() < end, f"there was no {what} within {self._limit:g} s; {self.describe()}"
            time.sleep(0.01)
        return value

    def report(self, number: int = 0) -> Any:
        """Wait for a value that the processes report, and return it."""
        return self.wait_until(lambda: self.reports()[number:], f"report {number}")[0]

    def reports(self) -> list[Any]:
        """Return the values that the processes have reported so far."""
        texts = [line.text for line in list(self.lines)]
        return [json.loads(text.removeprefix(REPORT)) for text in texts if text.startswith(REPORT)]

    def output(self, stream: str = "stdout") -> list[str]:
        """Return the lines of a stream that have been delivered so far."""
        return [line.text for line in list(self.lines) if line.stream == stream]

    def release(self) -> None:
        """End the launch if it is still there."""
        if self._thread.is_alive():
            run_within(self._limit, self.allocation.kill)
            self._thread.join(self._limit)

    def hand_over(self) -> None:
        """Leave the processes to another runner, and wait until the launch is closed."""
        self._is_handed_over = True
        self._thread.join(self._limit)
        assert self.closed, f"the launch was not handed over within {self._limit:g} s; {self.describe()}"

    def _log(self, rank: int | None, stream: str, text: str) -> None:
        self.lines.append(Line(rank, stream, text))

    def _watch(self) -> None:
        try:
            with closing(self.allocation):
                while self._end is None and not self._is_handed_over:
                    self._look()
                    with self.allocation.turn() as one:
                        self._end = self._timed(TICK, partial(one.wait, TICK))
                    if not isinstance(self._end, Exit | None):
                        raise TypeError(f"wait() returned {self._end!r}, expected an Exit or None")
                if self._is_handed_over:
                    self.allocation.hand_over()
                self._look()
            self.closed = True
        except Exception as problem:  # noqa: BLE001  (raised by `ended`)
            self._problem = problem

    def _look(self) -> None:
        with self.allocation.turn() as one:
            status = self._timed(0.0, one.status)
        if status not in self.statuses[-1:]:
            self.statuses.append(status)

    def _timed(self, allowed: float, function: Callable[[], T]) -> T:
        began = time.monotonic()
        try:
            return function()
        finally:
            self.slowest = max(self.slowest, time.monotonic() - began - allowed)

    def describe(self) -> str:
        """Return the present state of the launch, for errors."""
        return f"problem {self._problem!r}, states {self.statuses}, end {self._end}, last lines {self.lines[-20:]}"


def run_within(seconds: float, function: Callable[[], object]) -> float:
    """Run a function in a thread, check that it returns within a number of seconds, and return how many it took."""
    began = time.monotonic()
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"{function} did not return within {seconds:g} s"
    return time.monotonic() - began


def start_within(seconds: float, launcher: Launcher, request: LaunchRequest, adopted_as: float = 0.0) -> Allocation:
    """Start a launch in a thread, or adopt one, check that this returns within a number of seconds, and return it."""
    started: Future[Allocation] = Future()

    def start() -> None:
        try:
            allocation = launcher.adopt(request, adopted_as) if adopted_as else launcher.start(request)
        except Exception as error:  # noqa: BLE001  (raised to the caller)
            if started.set_running_or_notify_cancel():
                started.set_exception(error)
            return
        if started.set_running_or_notify_cancel():
            started.set_result(allocation)
        else:
            allocation.kill()
            allocation.close()

    threading.Thread(target=start, daemon=True).start()
    try:
        return started.result(seconds)
    except FutureTimeoutError:
        started.cancel()
        raise AssertionError(
            f"start() did not return within {seconds:g} s; a launch waits for slots after it was returned"
        ) from None


def refuse_calls(method: str, body: bytes) -> bytes:
    """Fail, in place of the tracking store of a launch that makes no calls."""
    raise AssertionError(f"unexpected call of {method}")
