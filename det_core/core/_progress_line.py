"""Progress of a trial in one line, which leaves out the least important parts where space is scarce."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from det_core.tracking.printable import printable_text

SEPARATOR = "  "
"""Text between two parts."""
BAR_SHARE = 10
"""Width of a terminal divided by the width of its progress bar."""
MARGIN = 5
"""Number of free columns at the right, where the terminal echoes ``^C`` without wrapping the line."""
_METRICS = 3
"""Maximum number of metrics per group."""


@dataclass(frozen=True)
class Part:
    """Part of a line."""

    text: str
    """The part in a few words."""
    rank: int
    """Importance. Parts of the lowest rank are left out last."""
    style: str = ""
    """Style in the notation of rich."""


def fit_parts(parts: Iterable[Part], width: int) -> list[Part]:
    """Return the parts that fit into a line, in their order.

    Args:
        parts: the parts.
        width: width of the line in characters. If not even the most important part fits, it is shortened.
    """
    given = list(parts)
    kept: set[int] = set()
    room = width
    for index in sorted(range(len(given)), key=lambda index: given[index].rank):
        needed = len(given[index].text) + (len(SEPARATOR) if kept else 0)
        if not kept and needed > room:
            return [Part(f"{given[index].text[: max(width - 1, 0)]}…", given[index].rank, given[index].style)]
        if needed <= room:
            kept.add(index)
            room -= needed
    return [part for index, part in enumerate(given) if index in kept]


class Pace:
    """Rate of batches, or of anything else that is counted, over the latest updates.

    Args:
        samples: number of changes over which the rate is measured.
        clock: function that returns the time in seconds.
    """

    def __init__(self, samples: int = 10, clock: Callable[[], float] = time.monotonic) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=samples)
        self._clock = clock
        self._steps: float | None = None

    def update(self, steps: float) -> None:
        """Record the present count. If it has decreased, the measurement starts over."""
        before, self._steps = self._steps, steps
        if before is None or steps < before:  # time before the first report or after a restart is not all training
            self._samples.clear()
        elif steps > before:
            self._samples.append((self._clock(), steps))

    @property
    def rate(self) -> float | None:
        """Rate per second, or None before two changes of the count."""
        if len(self._samples) < 2:
            return None
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        return (last - first) / (end - start) if end > start else None


@dataclass
class TrialProgress:
    """Latest news of one trial."""

    metric: str
    """Searcher's metric, or "" if there is none."""
    steps: int = 0
    """Number of batches trained."""
    total: int | None = None
    """Number of batches to train, or None while it is unknown."""
    share: float = 0.0
    """Share of the work that is done, 0 to 1, if ``total`` is unknown."""
    best: float | None = None
    """Best value of the searcher's metric."""
    latest: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Latest metrics by group."""
    pace: Pace = field(default_factory=Pace)
    """Rate of batches."""

    @property
    def done(self) -> float:
        """Share of the work that is done, 0 to 1."""
        return min(self.steps / self.total, 1.0) if self.total else self.share

    def parts(self) -> Iterator[Part]:
        """Yield the parts of the line: batches, latest and best values, time left, rate."""
        if self.total:
            yield Part(f"{self.steps}/{self.total}", 1, "bold")
        elif self.steps:
            yield Part(format_batches(self.steps), 1, "bold")
        if not self.total and self.share:
            yield Part(f"{self.share:.0%}", 1, "bold")
        for group, metrics in self.latest.items():
            for number, (name, value) in enumerate(self._shown(metrics)):
                yield Part(format_metric(_labelled(group, name), value), 2 + 3 * number)
        if self.best is not None:
            is_clear = [*self.latest][-1:] == ["validation"] and self.metric in self.latest["validation"]
            best = f"{self.best:.4g}" if is_clear else format_metric(self.metric, self.best)
            yield Part(f"best {best}", 3, "green")
        rate = self.pace.rate
        if rate:
            total = self.total or (self.steps / self.share if self.share else 0)
            if total > self.steps:
                yield Part(f"{_format_duration((total - self.steps) / rate)} left", 4, "cyan")
            yield Part(f"{rate:.{0 if rate >= 10 else 2}f} batches/s", 6, "cyan")

    def _shown(self, metrics: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return the metrics to show, the searcher's metric before the others."""
        short = [(name, value) for name, value in metrics.items() if isinstance(value, (int, float, str))]
        return sorted(short, key=lambda item: item[0] != self.metric)[:_METRICS]


def format_batches(count: int) -> str:
    """Format a number of batches with its noun."""
    return f"{count} {'batch' if count == 1 else 'batches'}"


def format_metric(name: str, value: Any) -> str:
    """Format a metric like ``loss=0.1235``."""
    return f"{printable_text(name)}={value:.4g}" if isinstance(value, float) else printable_text(f"{name}={value}")


def _format_duration(seconds: float) -> str:
    """Format a duration like ``00:07`` or ``2:05:00``."""
    return str(timedelta(seconds=round(seconds))).removeprefix("0:")


def _labelled(group: str, name: str) -> str:
    """Return the name of a metric. Validation metrics get the prefix ``val_``, as in TensorBoard."""
    if group != "validation" or name.startswith("val_"):
        return name
    return f"val_{name.removeprefix('validation_')}"
