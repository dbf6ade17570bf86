"""Handling of SIGTERM and SIGINT while a script is inside the core context."""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_TERMINATION_DELAY: Final = 5.0
"""Seconds from the first SIGTERM until another one ends a script that never polls for requests."""
_installed: weakref.WeakSet[SignalHandlers] = weakref.WeakSet()


class ScriptTerminated(SystemExit):
    """Exit of a script that never polls for requests and received SIGTERM again."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


class SignalHandlers:
    """Handlers that turn signals into requests to stop.

    The first SIGINT is a request, the second raises KeyboardInterrupt. SIGTERM is a request. Ignored signals stay
    ignored. In a forked child the previous handler of SIGTERM is restored, so that its parent can end it. The handler
    of SIGINT stays: a terminal sends SIGINT to parent and children alike, and the parent may need them to finish its
    batch.

    Args:
        request: called in the handler.
        is_deaf: returns whether the script never polls for requests. In such a script a second SIGTERM, seconds
            later, raises `ScriptTerminated`.
    """

    def __init__(self, request: Callable[[], None], is_deaf: Callable[[], bool]) -> None:
        self._request, self._is_deaf = request, is_deaf
        self._previous: dict[int, Callable[[int, FrameType | None], object] | int] = {}
        self._terminated_at: float | None = None
        self._interrupted = False

    def install(self) -> None:
        """Install the handlers. Do nothing outside the main thread, where Python allows no handlers."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if handler != signal.SIG_IGN:
                # None: the handler was not installed from Python, and cannot be restored.
                self._previous[number] = signal.SIG_DFL if handler is None else handler
                signal.signal(number, self._on_signal)
        _installed.add(self)

    def restore(self) -> None:
        """Restore the previous handlers."""
        _installed.discard(self)
        for number in list(self._previous):
            self._put_back(number)

    def _put_back(self, number: int) -> None:
        if number in self._previous:
            signal.signal(number, self._previous.pop(number))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True
        else:
            now = time.monotonic()
            self._terminated_at = now if self._terminated_at is None else self._terminated_at
            if now - self._terminated_at >= _TERMINATION_DELAY and self._is_deaf():
                raise ScriptTerminated
        self._request()


class _Masks(threading.local):
    """Signal masks that a thread had before each fork it is in the middle of."""

    def __init__(self) -> None:
        self.stack: list[set[int]] = []


_masks: Final = _Masks()


def _before_fork() -> None:
    # A new child forgets the signals that came before Python is ready in it. Blocked ones wait in the kernel.
    _masks.stack.append(signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS))


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.stack.pop())


def _after_fork_in_child() -> None:
    for handlers in _installed:
        handlers._put_back(signal.SIGTERM)
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
