"""Number of slots of a trial, which follows what is available if the trial is elastic."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial

_POLL_SECONDS = 5.0
"""Maximum number of seconds between two looks at the available slots."""


def choose_slot_count(
    counts: Sequence[int], current: int, available: int | None, *, is_running: bool, seconds: float, timeout: float
) -> int:
    """Return the number of slots with which a trial continues.

    Args:
        counts: numbers of slots that the trial may have.
        current: the number that it has or waits for.
        available: number of free slots that it could have now in addition to those that it has, or None if unknown.
        is_running: whether it has its slots. Otherwise it waits for them.
        seconds: how long it has waited, or how long there have been enough slots for a larger number.
        timeout: seconds after which the number changes.
    """
    if not is_running and (available or 0) >= current:
        timeout *= 2  # they seem to be there, so it should start soon
    if seconds < timeout:
        return current
    if is_running:
        return max(count for count in counts if current <= count <= current + (available or 0))
    fewer = (count for count in counts if count < current and (available is None or count <= available))
    return max(fewer, default=current)


class ElasticSlots:
    """Number of slots of the launches of one trial.

    Args:
        counts: numbers of slots that the trial may have, largest first. A single one never changes.
        timeout: seconds for which slots must be missing, or more of them available, before the number changes.
    """

    def __init__(self, counts: Sequence[int], timeout: float) -> None:
        self.count = counts[0]
        """Number of slots of the present launch, or of the next one if there is none."""
        self._counts = counts
        self._timeout = timeout
        self._growth_timeout = timeout
        """Seconds for which more slots must be available. Each attempt that does not get them doubles it."""
        self._grows = False
        """Whether the present launch has more slots than the last one."""
        self._next = self.count
        self._is_running = False
        self._since = time.monotonic()
        """Time since which the trial waits, or since which there are enough slots for a larger number."""
        self._poll_at = 0.0

    @property
    def is_elastic(self) -> bool:
        """Whether the number may change."""
        return len(self._counts) > 1

    def begin_run(self, available: Callable[[], int | None]) -> None:
        """Choose the number for a new run. It is never smaller than that of the last one, whose slots may come back."""
        before = self.count
        if self.is_elastic:
            free = available()
            self.count = max(count for count in self._counts if free is None or count <= max(free, before))
        self._grows = self.count > before
        self._begin()

    def continue_run(self, count: int) -> None:
        """Take the number of a run that goes on."""
        self.count = count
        self._begin()

    def needs_change(self, available: Callable[[], int | None], *, is_running: bool) -> bool:
        """Return once whether the present launch shall end, because the next one has another number of slots.

        Args:
            available: function that returns the number of free slots, as for `choose_slot_count`.
            is_running: whether the launch has its slots.
        """
        now = time.monotonic()
        if is_running != self._is_running:
            self._is_running, self._since = is_running, now
        if is_running and self._grows:
            self._grows, self._growth_timeout = False, self._timeout
        waits = not is_running and now - self._since < self._timeout
        is_complete = is_running and self.count == self._counts[0]
        if not self.is_elastic or waits or is_complete or now < self._poll_at or self._next != self.count:
            return False
        self._poll_at = now + min(_POLL_SECONDS, self._timeout / 4)
        timeout = self._growth_timeout if is_running else self._timeout
        choose = partial(
            choose_slot_count, self._counts, self.count, available(), is_running=is_running, timeout=timeout
        )
        if is_running and choose(seconds=math.inf) == self.count:
            self._since = now
        self._next = choose(seconds=now - self._since)
        return self._next != self.count

    def _begin(self) -> None:
        self._next, self._is_running, self._since, self._poll_at = self.count, False, time.monotonic(), 0.0

    def change(self) -> bool:
        """Let the next launch of this run have the number that was chosen, and return whether it is another one."""
        if self._next == self.count:
            return False
        self.count, self._since = self._next, time.monotonic()
        if self._grows:
            self._grows, self._growth_timeout = False, self._growth_timeout * 2
        return True

    def refuse(self) -> bool:
        """Choose the next smaller number, because the launcher refuses this one, and return whether there is one."""
        fewer = [count for count in self._counts if count < self.count]
        self.count = self._next = max(fewer, default=self.count)
        return bool(fewer)
