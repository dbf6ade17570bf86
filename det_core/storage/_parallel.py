"""One function over many items, in a bounded number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def in_parallel(
    work: Callable[[T], object], items: Iterable[T], *, threads: int, on_error: Callable[[], object] = lambda: None
) -> None:
    """Do the work for every item; this thread takes part.

    The first error, or an interrupt of this thread, keeps all threads from further items. It is raised when
    they have ended, so nothing goes on behind the caller's back; ``on_error`` may make them end sooner.
    """
    waiting = list(items)
    errors: list[BaseException] = []
    shared = iter(waiting)

    def drain() -> None:
        for item in shared:
            if errors:
                return
            try:
                work(item)
            except BaseException as error:  # noqa: BLE001  # raised below
                errors.append(error)
                on_error()

    helpers = [threading.Thread(target=drain) for _ in range(min(threads, len(waiting)) - 1)]
    for helper in helpers:
        helper.start()
    drain()
    for helper in helpers:
        while helper.is_alive():
            try:
                helper.join()
            except KeyboardInterrupt as error:
                errors.append(error)
                on_error()
    if errors:
        raise errors[0]
