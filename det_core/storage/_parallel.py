"""One function over many items, in a bounded number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


def in_parallel(
    work: Callable[[T], object], items: Iterable[T], *, threads: int, on_error: Callable[[], object] = lambda: None
) -> None:
    """Do the work for every item; this thread takes part.

    The first error, or the exception of a signal handler in this thread, keeps all threads from further items. It is
    raised once all threads have ended, so that no work outlives the call. ``on_error`` may make them end sooner.
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
        # A thread that has not begun by now finds nothing to do. The lists, not the queue, say how many are left,
        # because a signal may raise after the queue has been read. Not `join`: if a signal interrupts it, CPython 3.11
        # considers the thread ended.
        while len(ended) < len(began):
            if errors:
                on_error()
            woken.get()

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
