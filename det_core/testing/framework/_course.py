"""What happens to a trial in one run, and when. The trial itself says how far it is."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

Incident: TypeAlias = tuple[str, int, str | Callable[[], None]]
"""(point, how often it was reached before, what happens then), as in ``("training", 5, "leave")``."""


class Mishap(Exception):
    """What the suite lets a trial's code raise."""


def _fail() -> None:
    raise Mishap("the suite made this trial fail")


INCIDENTS: dict[str, Callable[[], None]] = {
    "leave": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "fail": _fail,
}


@dataclass
class Course:
    incidents: Sequence[Incident]
    counts: Counter[str] = field(default_factory=Counter)
    """How often each point was reached."""


_courses: list[Course] = []


def reached(point: str) -> None:
    """Call this in your trial's code: ``"training"`` in each batch, ``"validation"`` in each batch of a validation.

    Outside of the suite it does nothing.
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
    """The run inside of this block meets these incidents."""
    _courses.append(Course(incidents))
    try:
        yield _courses[-1]
    finally:
        _courses.pop()
