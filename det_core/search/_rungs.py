"""One bracket of asynchronous successive halving, in which the best trials of each rung are promoted to the next one.

After Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020 (arXiv 1810.05934).
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from det_core.interfaces.search_method import WORST

RungResult = tuple[float, int, int]
"""Metric, position among equal metrics, and trial. They sort by metric, and equal metrics by position."""


@dataclass(frozen=True)
class PromotionRule:
    """Rule of promotion. Of the ``n`` results of a rung, the best ``floor(n / divisor)`` are promoted.

    Args:
        least: minimum number of promoted results.
        results_wait: whether a result that is not promoted waits until further results make it one of the best. If not,
            a new result ranks before equal ones, because this is its only chance, and a failed trial is not promoted.
    """

    least: int
    results_wait: bool

    def promoted_count(self, results: int, divisor: float) -> int:
        """Return how many of a number of results are promoted."""
        return max(int(results / divisor), self.least)


PROMOTION = PromotionRule(least=0, results_wait=True)
"""Default rule, under which a result waits as long as further results could promote it."""
STOP_ONCE = PromotionRule(least=1, results_wait=False)
"""Rule of ``stop_once``, under which a trial is either promoted at once or never."""


@dataclass
class Rung:
    """Results at one length.

    Attributes:
        length: length at which trials are validated, in the unit of the searcher.
        training: number of trials that train for this rung.
        seen: number of results ever reported.
        waiting: results that may still be promoted.
        settled: results of trials that were promoted or closed.
    """

    length: int
    training: int = 0
    seen: int = 0
    waiting: list[RungResult] = field(default_factory=list)
    settled: list[RungResult] = field(default_factory=list)

    def candidate(self, rule: PromotionRule, divisor: float) -> RungResult | None:
        """Return the result to promote next, or None."""
        if not self.waiting:
            return None
        best, results = self.waiting[0], len(self.waiting) + len(self.settled)
        return best if bisect(self.settled, best) < rule.promoted_count(results, divisor) else None

    def add(self, metric: float, trial: int, rule: PromotionRule) -> None:
        """Add the result of a trial that has trained for this rung."""
        self.training -= 1
        insort(self.waiting, (metric, self.seen if rule.results_wait else -self.seen, trial))
        self.seen += 1

    def settle(self, entries: Sequence[RungResult]) -> None:
        """Mark the best waiting results as settled."""
        for entry in entries:
            insort(self.settled, entry)
        self.waiting = self.waiting[len(entries) :]

    def remove(self, trial: int) -> None:
        """Remove the result of a trial."""
        self.waiting = [entry for entry in self.waiting if entry[2] != trial]
        self.settled = [entry for entry in self.settled if entry[2] != trial]


class Bracket:
    """Rungs with their trials.

    Args:
        lengths: lengths of the rungs, in increasing order.
        trials: number of trials.
        divisor: number of results of a rung per promoted one.
        rule: the rule of promotion.

    Attributes:
        rungs: the rungs, lowest first.
        trials: number of trials.
        left: number of trials that may still be created.
    """

    def __init__(self, lengths: Iterable[int], trials: int, divisor: float, rule: PromotionRule) -> None:
        self.rungs = [Rung(length) for length in lengths]
        self.trials = self.left = trials
        self._divisor, self._rule = divisor, rule
        self._at: dict[int, int] = {}
        """Index of the rung that each trial trains for or has reached."""
        self._reached: dict[int, int] = {}
        """Length of the highest rung that each trial has reached."""

    @property
    def expected(self) -> list[int]:
        """Number of trials that reach each rung if no later result is better than a promoted one."""
        counts = [self.trials]
        for _ in self.rungs[1:]:
            counts.append(self._rule.promoted_count(counts[-1], self._divisor))
        return counts

    def enter(self, trial: int) -> int:
        """Add a new trial, and return the length to train."""
        self.left -= 1
        return self._climb(trial, 0)

    def promote(self) -> tuple[int, int] | None:
        """Promote a trial, and return it with the length to train, or None. Higher rungs come first."""
        for place in range(len(self.rungs) - 2, -1, -1):
            if entry := self.rungs[place].candidate(self._rule, self._divisor):
                self.rungs[place].settle([entry])
                return entry[2], self._climb(entry[2], place + 1)
        return None

    def report(self, trial: int, metric: float) -> None:
        """Record the result of a trial that has trained for its rung."""
        rung = self.rungs[self._at[trial]]
        rung.add(metric, trial, self._rule)
        self._reached[trial] = rung.length

    def fail(self, trial: int) -> None:
        """Record a failure of a trial as the worst result of the rung that it has trained for."""
        self.report(trial, WORST)
        if not self._rule.results_wait:
            rung = self.rungs[self._at[trial]]
            rung.settle(rung.waiting)

    def replace(self, trial: int) -> None:
        """Forget a trial that is in training, and let another one take its place."""
        self.rungs[self._at[trial]].training -= 1
        for rung in self.rungs:
            rung.remove(trial)
        self.left += 1

    def close(self) -> Iterator[int]:
        """Yield the trials that will not be promoted, each once."""
        *lower, top = self.rungs
        closed = list(top.waiting)
        top.settle(closed)
        growing = self.left > 0
        for rung in lower:
            growing = growing or rung.training > 0
            if not (growing and self._rule.results_wait) and not rung.candidate(self._rule, self._divisor):
                closed += rung.waiting
                rung.settle(rung.waiting)
        return (trial for _, _, trial in closed)

    def work(self, lengths: Mapping[int, float]) -> tuple[float, int]:
        """Return the length trained so far and the expected length, both summed over all trials.

        Args:
            lengths: the current length of each trial, in the unit of the searcher.
        """
        trained = [max(reached, lengths.get(trial, 0)) for trial, reached in self._reached.items()]
        done, expected, below = 0.0, 0, 0
        for rung, count in zip(self.rungs, self.expected, strict=True):
            part = count * (rung.length - below)
            done += min(part, sum(min(length, rung.length) - below for length in trained if length > below))
            expected += part
            below = rung.length
        return done, expected

    def state(self) -> dict[str, Any]:
        """Return everything that events change, as JSON-compatible values."""
        rungs = [[rung.training, rung.seen, list(rung.waiting), list(rung.settled)] for rung in self.rungs]
        trials = [[trial, place, self._reached[trial]] for trial, place in self._at.items()]
        return {"left": self.left, "rungs": rungs, "trials": trials}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` has returned."""
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
