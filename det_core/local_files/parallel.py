"""Parallel calls of one function on many items, in a bounded number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")

_SIGNAL_SECONDS = 0.2
"""Maximum number of seconds until the handler of a signal runs, which CPython calls in the main thread only. A signal
that arrives right before a wait of that thread, or in another thread, does not interrupt the wait."""


def in_parallel(
    work: Callable[[T], object], items: Iterable[T], *, threads: int, on_error: Callable[[], object] = lambda: None
) -> None:
    """Call ``work`` with every item, in up to ``threads`` threads including the calling one.

    After the first error, or an exception of a signal handler in this thread, no thread takes another item. The error
    is raised once all threads have ended, so that no work outlives the call.

    Args:
        work: function of one item.
        items: the items, which are taken in order.
        threads: maximum number of threads.
        on_error: called after an error, from any thread and possibly several times, to end work in progress sooner.
    """
    waiting = list(items)
    errors: list[BaseException] = []
    shared = iter(waiting)
    began: list[None] = []
    ended: list[None] = []
    woken: SimpleQueue[None] = SimpleQueue()

    def drain() -> None:
        for item in shared:
            if errors:
                return
            try:
                work(item)
            except BaseException as error:  # noqa: BLE001  # raised below
                errors.append(error)
                on_error()

    def help_out() -> None:
        began.append(None)
        try:
            drain()
        finally:
            ended.append(None)
            woken.put(None)

    def wait_for_helpers() -> None:
        # A thread that has not begun yet will find no items. The remaining threads are counted by the lists rather
        # than the queue, because a signal handler may raise right after the queue was read. `Thread.join` is unsuitable
        # because CPython 3.11 considers the thread ended if a signal interrupts the call.
        while len(ended) < len(began):
            if errors:
                on_error()
            with suppress(Empty):
                woken.get(timeout=_SIGNAL_SECONDS)

    try:
        for _ in range(min(threads, len(waiting)) - 1):
            threading.Thread(target=help_out).start()
        drain()
    except BaseException as error:  # noqa: BLE001
        errors.append(error)
    while True:
        try:
            wait_for_helpers()
            break
        except BaseException as error:  # noqa: BLE001
            errors.append(error)
    if errors:
        raise errors[0]
