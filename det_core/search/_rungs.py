"""Asynchronous successive halving, one bracket of it: trials climb rungs, and the best of each go on.

After Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020 (arXiv 1810.05934).
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Entry = tuple[float, int, int]
"""(metric, how many results the rung had before, trial): the best first, of equals the earlier."""


@dataclass(frozen=True)
class Rule:
    """Which of the ``n`` results of a rung go on to the next one.

    Args:
        least: the best ``floor(n / divisor)``, but at least so many.
        patient: whether a result that does not go on waits until others make it one of the best.
    """

    least: int
    patient: bool

    def going_on(self, results: int, divisor: float) -> int:
        return max(int(results / divisor), self.least)


PROMOTION = Rule(least=0, patient=True)
STOP_ONCE = Rule(least=1, patient=False)


@dataclass
class Rung:
    """The results at one length.

    Attributes:
        training: trials on their way to this rung.
        seen: results that ever came.
        waiting: results that may still go on.
        settled: results of trials that went on or were closed.
    """

    length: int
    training: int = 0
    seen: int = 0
    waiting: list[Entry] = field(default_factory=list)
    settled: list[Entry] = field(default_factory=list)

    def candidate(self, rule: Rule, divisor: float) -> Entry | None:
        """The result that goes on next."""
        if not self.waiting:
            return None
        best, results = self.waiting[0], len(self.waiting) + len(self.settled)
        return best if bisect(self.settled, best) < rule.going_on(results, divisor) else None

    def add(self, metric: float, trial: int) -> None:
        self.training -= 1
        insort(self.waiting, (metric, self.seen, trial))
        self.seen += 1

    def settle(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            insort(self.settled, entry)
        self.waiting = self.waiting[len(entries) :]

    def remove(self, trial: int) -> None:
        self.waiting = [entry for entry in self.waiting if entry[2] != trial]
        self.settled = [entry for entry in self.settled if entry[2] != trial]


class Bracket:
    """The rungs of a number of trials, and who has reached which.

    Attributes:
        trials: how many it is for; the more of them, the more go up.
        left: how many of them it may still create.
    """

    def __init__(self, lengths: Iterable[int], trials: int, divisor: float, rule: Rule) -> None:
        self.rungs = [Rung(length) for length in lengths]
        self.trials = self.left = trials
        self._divisor, self._rule = divisor, rule
        self._at: dict[int, int] = {}
        """Trial -> the rung that it trains for, or has reached."""
        self._reached: dict[int, int] = {}
        """Trial -> the length of the highest rung that it has reached."""

    @property
    def expected(self) -> list[int]:
        """How many trials reach each rung, if none is displaced by a better one that comes later."""
        counts = [self.trials]
        for _ in self.rungs[1:]:
            counts.append(self._rule.going_on(counts[-1], self._divisor))
        return counts

    def enter(self, trial: int) -> int:
        """A new trial: the length to train."""
        self.left -= 1
        return self._climb(trial, 0)

    def promote(self) -> tuple[int, int] | None:
        """The next trial to go on, and the length to train; the highest first."""
        for place in range(len(self.rungs) - 2, -1, -1):
            if entry := self.rungs[place].candidate(self._rule, self._divisor):
                self.rungs[place].settle([entry])
                return entry[2], self._climb(entry[2], place + 1)
        return None

    def report(self, trial: int, metric: float) -> None:
        """The trial has come to the end of its rung."""
        rung = self.rungs[self._at[trial]]
        rung.add(metric, trial)
        self._reached[trial] = rung.length

    def replace(self, trial: int) -> None:
        """Forget the results of a trial that trains, and let another one take its place."""
        self.rungs[self._at[trial]].training -= 1
        for rung in self.rungs:
            rung.remove(trial)
        self.left += 1

    def close(self) -> Iterator[int]:
        """The trials that will not go on; each is told once."""
        *lower, top = self.rungs
        closed = list(top.waiting)
        top.settle(closed)
        growing = self.left > 0
        for rung in lower:
            growing = growing or rung.training > 0
            if not (growing and self._rule.patient) and not rung.candidate(self._rule, self._divisor):
                closed += rung.waiting
                rung.settle(rung.waiting)
        return (trial for _, _, trial in closed)

    def work(self, lengths: Mapping[int, float]) -> tuple[float, int]:
        """What was trained of what is expected, and what is expected, in the unit of the lengths."""
        trained = [max(reached, lengths.get(trial, 0)) for trial, reached in self._reached.items()]
        done, expected, below = 0.0, 0, 0
        for rung, count in zip(self.rungs, self.expected, strict=True):
            part = count * (rung.length - below)
            done += min(part, sum(min(length, rung.length) - below for length in trained if length > below))
            expected += part
            below = rung.length
        return done, expected

    def state(self) -> dict[str, Any]:
        """Everything that events change, in types that JSON has."""
        rungs = [[rung.training, rung.seen, list(rung.waiting), list(rung.settled)] for rung in self.rungs]
        trials = [[trial, place, self._reached[trial]] for trial, place in self._at.items()]
        return {"left": self.left, "rungs": rungs, "trials": trials}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put back what `state` returned."""
        self.left = state["left"]
        for rung, (training, seen, waiting, settled) in zip(self.rungs, state["rungs"], strict=True):
            rung.training, rung.seen = training, seen
            rung.waiting, rung.settled = [tuple(entry) for entry in waiting], [tuple(entry) for entry in settled]
        self._at = {trial: place for trial, place, _ in state["trials"]}
        self._reached = {trial: reached for trial, _, reached in state["trials"]}

    def _climb(self, trial: int, place: int) -> int:
        self._at[trial] = place
        self._reached.setdefault(trial, 0)
        self.rungs[place].training += 1
        return self.rungs[place].length
