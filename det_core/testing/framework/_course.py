"""Incidents that happen to a trial at certain points of one run. The trial reports the points by `reached`."""

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


class Mishap(Exception):
    """Error that the suite raises in a trial's code."""


def _fail() -> None:
    raise Mishap("the suite made this trial fail")


INCIDENTS: dict[str, Callable[[], None]] = {
    "leave": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "fail": _fail,
}
"""Names of actions mapped to functions."""


@dataclass
class Course:
    """Incidents of one run, and the points that it has reached."""

    incidents: Sequence[Incident]
    counts: Counter[str] = field(default_factory=Counter)
    """Number of times that each point was reached."""


_courses: list[Course] = []


def reached(point: str) -> None:
    """Report that the trial has reached a point. Outside of the suite, this does nothing.

    Trials call it with ``"training"`` in each batch, and with ``"validation"`` in each batch of a validation.
    """
    if not _courses:
        return
    course = _courses[-1]
    count = course.counts[point]
    course.counts[point] += 1
    for when, number, incident in course.incidents:
        if (when, number) == (point, count):
            (INCIDENTS[incident] if isinstance(incident, str) else incident)()


@contextmanager
def course(incidents: Sequence[Incident]) -> Iterator[Course]:
    """Let the incidents happen to the run in this block."""
    _courses.append(Course(incidents))
    try:
        yield _courses[-1]
    finally:
        _courses.pop()
