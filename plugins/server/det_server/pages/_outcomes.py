"""Words for what became of trials and of their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from det_core.interfaces.records import Run, State, TrialRecord, is_stopped_early
from det_server._rendering import state_word

_EARLY_EXITS = {"EXITED_REASON_INVALID_HP": "rejected"}
"""Words for the reasons for which a trial stopped for good by itself. Others have the same word."""


def outcome_word(trial: TrialRecord, config: Mapping[str, Any], runs: Sequence[Run]) -> str:
    """Return how a trial ended, or what it does.

    Args:
        trial: the trial.
        config: config of its experiment.
        runs: its runs in order.
    """
    early_exit = runs[-1].early_exit if runs else None
    if trial.state is State.COMPLETED and early_exit:
        return _EARLY_EXITS.get(early_exit, "ended itself")
    return "stopped early" if is_stopped_early(trial, config) else state_word(trial.state)


def run_spans(runs: Sequence[Run], outcome: str) -> list[tuple[float, float | None, str]]:
    """Return when each run of a trial began and ended, in seconds since 1970, with a word for its end.

    Args:
        runs: the runs in order.
        outcome: word for the trial.
    """
    words = [*map(_word_of_earlier, runs[:-1]), outcome]
    return [
        (start, _seconds(run.end_time), word)
        for run, word in zip(runs, words, strict=False)
        if (start := _seconds(run.start_time)) is not None
    ]


def _word_of_earlier(run: Run) -> str:
    """Return how a run ended that was not the last one of its trial."""
    if run.preemption_acknowledged:
        return "paused"
    return "restarted" if run.end_reason else "continued"


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else round(time.timestamp(), 3)
