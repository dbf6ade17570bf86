"""Trying again what may pass."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from det_core.errors import StorageError
from det_core.interfaces.objects import Transient

T = TypeVar("T")

_jitter = random.Random()  # noqa: S311  # a trial's own generator must not move


@dataclass(frozen=True)
class Patience:
    """When to give up.

    Attributes:
        tries: of one request at most; None: as many as ``total`` allows.
        first: seconds before the second try; they double from try to try, times a random factor of 0.5 to 1
            (M. Brooker, "Exponential Backoff And Jitter", 2015), so that many workers do not come back at once.
        longest: seconds between two tries, also where the server asks for more.
        total: seconds after which no other try begins.
    """

    tries: int | None = None
    first: float = 0.2
    longest: float = 10.0
    total: float = 120.0


PATIENT = Patience()
HASTY = Patience(tries=3, total=10.0)
"""For a user who waits for an answer."""


class Attempts:
    """Calls requests until they succeed. `stop` ends all waits of it.

    Args:
        patience: with each request.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Wait no longer; requests that failed raise."""
        self._stopped.set()

    def __call__(self, request: Callable[[], T]) -> T:
        """The result of the request.

        Raises:
            StorageError: it failed too often.
        """
        began, pause = time.monotonic(), self._patience.first
        for tried in itertools.count(1):
            try:
                return request()
            except Transient as error:
                reason, wait = error, error.after or pause * _jitter.uniform(0.5, 1)
            wait = min(wait, self._patience.longest)
            late = time.monotonic() - began + wait > self._patience.total
            if late or tried == self._patience.tries or self._stopped.wait(wait):
                break
            pause = min(2 * pause, self._patience.longest)
        raise StorageError(f"{reason}; gave up after {tried} tries in {time.monotonic() - began:.0f} s") from reason
