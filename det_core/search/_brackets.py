"""How asynchronous halving shares out lengths, trials and slots: pure tables."""

from __future__ import annotations

from collections.abc import Sequence


def rung_lengths(max_length: int, num_rungs: int, divisor: float) -> list[int]:
    """The lengths of the rungs, each ``divisor`` times the one below, up to ``max_length``.

    No length is below 1, and of equal ones there is one rung.
    """
    powers = range(num_rungs - 1, -1, -1)
    return list(dict.fromkeys(max(int(max_length / divisor**power), 1) for power in powers))


def most_rungs(limit: int, *, max_length: int, max_trials: int, divisor: float) -> int:
    """At most ``limit``, and so few that the first rung has a length of 1 and the last one a trial of its own."""
    rungs = 1
    while rungs < limit and divisor**rungs <= min(max_length, max_trials):
        rungs += 1
    return rungs


def fewest_rungs(mode: str, most: int) -> int:
    """Of the brackets of a mode, which have from so many to ``most`` rungs."""
    return {"aggressive": most, "standard": (most - 1) // 2 + 1, "conservative": 1}[mode]


def trials_per_bracket(max_trials: int, rungs: Sequence[int], divisor: float) -> list[int]:
    """Trials for brackets with so many rungs each, so that all train about equally long; what is over, to the first.

    Every bracket has one, as long as there are enough.
    """
    weights = [divisor ** (count - 1) / count for count in rungs[:max_trials]]
    trials = [max(int(weight / sum(weights) * max_trials), 1) for weight in weights]
    trials[0] += max(max_trials - sum(trials), 0)
    while sum(trials) > max_trials:
        trials[trials.index(max(trials))] -= 1
    return trials


def shares(max_concurrent_trials: int, trials: Sequence[int], rungs: Sequence[int], divisor: float) -> list[int]:
    """How many trials each bracket starts with.

    Evenly, what is over to the first ones; without a limit, one trial for the top of each bracket.
    """
    if max_concurrent_trials:
        each, over = divmod(max_concurrent_trials, len(trials))
        return [each + (place < over) for place in range(len(trials))]
    return [min(max(int(divisor ** (count - 1)), 1), most) for count, most in zip(rungs, trials, strict=True)]
