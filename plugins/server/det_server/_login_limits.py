"""Limits on logins and on changes of accounts, in memory of a bounded size."""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from det_server._client_address import client_network
from det_server._refusal import RefusedError

_WINDOW = 15 * 60.0
"""Seconds after the first attempt in which the others are counted."""
_REMEMBERED = 10_000
"""Maximum number of names and addresses that each limit remembers, the latest ones."""
_LIMITS = {"user and address": 5, "address": 30, "user and device": 5}
"""Maximum number of attempts by what they have in common. One that succeeds does not count.

There is none by user alone, because strangers would lock the user out. Those who share an address with strangers have a
device from which they logged in before."""
_DAY = 24 * 60 * 60.0
MAX_CHANGES, MAX_CHANGES_IN_A_DAY = 200, 1000
"""Maximum numbers of logins and new passwords and tokens of a user in `_WINDOW` and in a day. Each is an entry in the
audit log, which would otherwise grow without bound."""
_CHANGES = {"changes": (MAX_CHANGES, _WINDOW), "changes in a day": (MAX_CHANGES_IN_A_DAY, _DAY)}
MAX_RECORDED_FAILURES = 1000
"""Maximum number of failed logins, of all clients together, that the audit log records in `_WINDOW`. Of more it has
their number each time that it has doubled."""
_FAILURES = "failures"


class LoginLimits:
    """Counts of the attempts to log in, by address, or by the device if the user has logged in from it before.

    Args:
        clock: function that returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._attempts = {kind: OrderedDict[Hashable, tuple[float, int]]() for kind in (*_LIMITS, *_CHANGES, _FAILURES)}

    def count_attempt(self, user: str, address: str, device: str = "") -> None:
        """Count an attempt before its password is checked, so that many at once count as well.

        Args:
            user: name of the user.
            address: network address of the client.
            device: id of a device from which the user has logged in before, or an empty string.

        Raises:
            RefusedError: there were too many.
        """
        with self._lock:
            counts = (self._count(kind, key, _LIMITS[kind]) for kind, key in _keys(user, address, device).items())
            wait = next(filter(None, counts), 0.0)
        _refuse(wait, "attempts to log in", ", or ask an admin for a new password")

    def count_change(self, user: str) -> None:
        """Count a login or a change of a user who has the right password or a session.

        Args:
            user: name of the user, who exists.

        Raises:
            RefusedError: there were too many.
        """
        with self._lock:
            counts = (self._count(kind, user, most, window) for kind, (most, window) in _CHANGES.items())
            wait = next(filter(None, counts), 0.0)
        _refuse(wait, f"logins and changes of {user}", "")

    def count_failure(self) -> str | None:
        """Count a login that failed.

        Returns:
            An empty string if the audit log has room for it, the number of earlier ones if this is to be recorded
            instead, or None.
        """
        with self._lock:
            self._count(_FAILURES, "", sys.maxsize)
            earlier = self._attempts[_FAILURES][""][1] - 1
        if earlier < MAX_RECORDED_FAILURES:
            return ""
        times, rest = divmod(earlier, MAX_RECORDED_FAILURES)
        has_doubled = rest == 0 and times & (times - 1) == 0
        return f"more than {earlier} in {_WINDOW / 60:.0f} min" if has_doubled else None

    def forgive(self, user: str, address: str, device: str = "") -> None:
        """Take back an attempt that succeeded, and forget failures of this user there."""
        with self._lock:
            for kind, key in _keys(user, address, device).items():
                if kind == "address":
                    self._uncount(kind, key)
                else:
                    self._attempts[kind].pop(key, None)

    def take_back(self, user: str, address: str, device: str = "") -> None:
        """Take back an attempt whose password was not checked."""
        with self._lock:
            for kind, key in _keys(user, address, device).items():
                self._uncount(kind, key)

    def _count(self, kind: str, key: Hashable, most: int, window: float = _WINDOW) -> float:
        """Count one of a kind, and return the seconds to wait if there were too many."""
        attempts, present = self._attempts[kind], self._clock()
        begun, number = attempts.get(key, (present, 0))
        if present - begun >= window:
            begun, number = present, 0
        attempts[key] = begun, min(number + 1, most + 1)
        attempts.move_to_end(key)
        if len(attempts) > _REMEMBERED:
            attempts.popitem(last=False)
        return begun + window - present if number >= most else 0.0

    def _uncount(self, kind: str, key: Hashable) -> None:
        begun, number = self._attempts[kind].pop(key, (0.0, 0))
        if number > 1:
            self._attempts[kind][key] = begun, number - 1


def _refuse(wait: float, what: str, instead: str) -> None:
    if wait:
        message = f"too many {what}; try again in {-(-wait // 60):.0f} min{instead}"
        raise RefusedError(429, message, {"retry-after": f"{wait:.0f}"})


def _keys(user: str, address: str, device: str) -> dict[str, Hashable]:
    user, place = user[:100], client_network(address)
    if device:
        return {"user and device": (user, device)}
    # An address that is refused adds no users, so that it alone cannot make the limits forget others.
    return {"address": place, "user and address": (user, place)}
