"""Distribution of lengths, trials and slots over the rungs and brackets of asynchronous halving."""

from __future__ import annotations

from collections.abc import Sequence


def rung_lengths(max_length: int, num_rungs: int, divisor: float) -> list[int]:
    """Return the lengths of the rungs, each ``divisor`` times the one below, up to ``max_length``.

    No length is less than 1. Rungs of equal length are merged into one.
    """
    powers = range(num_rungs - 1, -1, -1)
    return list(dict.fromkeys(max(int(max_length / divisor**power), 1) for power in powers))


def count_max_rungs(limit: int, *, max_length: int, max_trials: int, divisor: float) -> int:
    """Return the maximum number of rungs of a bracket.

    It is at most ``limit``, and low enough that the first rung has a length of at least 1 and the last one a trial.

    Args:
        limit: maximum number of rungs.
        max_length: length of the last rung.
        max_trials: number of trials of the search.
        divisor: factor between the lengths of two rungs.
    """
    rungs = 1
    while rungs < limit and divisor**rungs <= min(max_length, max_trials):
        rungs += 1
    return rungs


def count_min_rungs(mode: str, most: int) -> int:
    """Return the minimum number of rungs of the brackets in a mode.

    Args:
        mode: ``aggressive``, ``standard`` or ``conservative``.
        most: maximum number of rungs.
    """
    return {"aggressive": most, "standard": (most - 1) // 2 + 1, "conservative": 1}[mode]


def trials_per_bracket(max_trials: int, rungs: Sequence[int], divisor: float) -> list[int]:
    """Return the number of trials of each bracket, such that all brackets train for about the same length.

    The first bracket gets the remainder. Every bracket gets a trial, as long as there are enough.

    Args:
        max_trials: number of trials of the search.
        rungs: number of rungs of each bracket.
        divisor: factor between the lengths of two rungs.
    """
    weights = [divisor ** (count - 1) / count for count in rungs[:max_trials]]
    trials = [max(int(weight / sum(weights) * max_trials), 1) for weight in weights]
    trials[0] += max(max_trials - sum(trials), 0)
    while sum(trials) > max_trials:
        trials[trials.index(max(trials))] -= 1
    return trials


def starting_trials_per_bracket(max_concurrent_trials: int, trials: Sequence[int], unlimited: int) -> list[int]:
    """Return the number of trials that each bracket starts with.

    With a limit, they are distributed evenly, and the first brackets get the remainder.

    Args:
        max_concurrent_trials: maximum number of trials at once, or 0 for no limit.
        trials: number of trials of each bracket.
        unlimited: number of trials that each bracket starts with if there is no limit, and it has as many.
    """
    if max_concurrent_trials:
        each, over = divmod(max_concurrent_trials, len(trials))
        return [each + (place < over) for place in range(len(trials))]
    return [min(unlimited, most) for most in trials]
