"""Repetition of transactions and remote calls while the database or the det server is locked or unavailable."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, TypeVar

from det_core.errors import StoreBusy

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_log = logging.getLogger("det.tracking")

_PAUSE = 0.2
"""Seconds between two attempts."""
_SAY_AFTER = 3.0
"""Seconds until a warning says what is unavailable."""


class Unavailable(StoreBusy):
    """Error of a transaction that the database rejected. It had no effect and can be repeated."""


class Outage:
    """Time limit on an unavailable database.

    All threads share one clock, which starts at the first failure and stops at the next success. A process that gives
    up therefore does not wait again in each of its last calls.

    Args:
        wait: seconds after which a call gives up.
        what: name of what is unavailable, for the warning.
    """

    def __init__(self, wait: float, what: str = "the database") -> None:
        self._wait = wait
        self._what = what
        self._since: float | None = None
        self._failed_at = math.inf
        self._is_announced = False

    def retry(self, call: Callable[[], T]) -> T:
        """Return the result of ``call``, repeated while it raises Unavailable.

        Raises:
            Unavailable: the database was unavailable for too long.
        """
        start = time.monotonic()
        while True:
            try:
                result = call()
            except Unavailable as error:
                now = time.monotonic()
                if now > self._failed_at + self._wait:  # that was another outage, whose end nobody has noticed
                    self._since, self._is_announced = None, False
                since = self._since = min(start, self._since or start)
                self._failed_at = now
                elapsed = now - since
                if elapsed >= self._wait:
                    raise
                self._announce(error, elapsed)
                time.sleep(min(_PAUSE, self._wait - elapsed))
            else:
                if self._since is not None:
                    self._since, self._is_announced = None, False
                return result

    def _announce(self, error: Unavailable, elapsed: float) -> None:
        if elapsed >= _SAY_AFTER and not self._is_announced:
            self._is_announced = True
            _log.warning("%s is unavailable, will retry for %.0f s: %s", self._what, self._wait - elapsed, error)
