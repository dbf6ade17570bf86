"""Incidents that happen to a trial at certain points of one run. The trial reports the points by `reach_point`."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

Incident: TypeAlias = tuple[str, int, str | Callable[[], None]]
"""Point, the number of times that it was reached before, and the action, as in ``("training", 5, "leave")``."""


class InjectedError(Exception):
    """Error that the suite raises in a trial's code."""


def _fail() -> None:
    raise InjectedError("the suite made this trial fail")


INCIDENT_ACTIONS: dict[str, Callable[[], None]] = {
    "leave": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "fail": _fail,
}
"""Names of actions mapped to functions."""


@dataclass
class IncidentSchedule:
    """Incidents of one run, and the points that it has reached."""

    incidents: Sequence[Incident]
    counts: Counter[str] = field(default_factory=Counter)
    """Number of times that each point was reached."""


_schedules: list[IncidentSchedule] = []


def reach_point(point: str) -> None:
    """Report that the trial has reached a point. Outside of the suite, this does nothing.

    Trials call it with ``"training"`` in each batch, and with ``"validation"`` in each batch of a validation.
    """
    if not _schedules:
        return
    course = _schedules[-1]
    count = course.counts[point]
    course.counts[point] += 1
    for when, number, incident in course.incidents:
        if (when, number) == (point, count):
            (INCIDENT_ACTIONS[incident] if isinstance(incident, str) else incident)()


@contextmanager
def schedule_incidents(incidents: Sequence[Incident]) -> Iterator[IncidentSchedule]:
    """Let the incidents happen to the run in this block."""
    _schedules.append(IncidentSchedule(incidents))
    try:
        yield _schedules[-1]
    finally:
        _schedules.pop()
