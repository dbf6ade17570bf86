"""Watcher that polls a search for news of its trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from det_core.interfaces.records import (
    STATE_WORDS,
    ExperimentRecord,
    State,
    TrialRecord,
    TrialResult,
    is_stopped_early,
    searcher_metric,
)
from det_core.interfaces.tracking import TrackingStore
from det_core.text import format_count, format_value
from det_core.tracking.printable import printable_text

STOPPED_EARLY = "stopped early"
"""Word for a trial that its search has completed before the others."""


@dataclass(frozen=True)
class TrialNews:
    """News of one trial in one line."""

    trial_id: int
    text: str
    routine: bool
    """Whether the news is a validation, of which there are many."""


class SearchWatcher:
    """Watcher of a search that returns news of validated, failed and ended trials.

    Args:
        store: the tracking store.
        experiment_id: the experiment.
    """

    def __init__(self, store: TrackingStore, experiment_id: int) -> None:
        self.store = store
        self.experiment: ExperimentRecord = store.experiment(experiment_id)
        self.metric, self.smaller_is_better = searcher_metric(self.experiment.config)
        self.unit = _unit(self.experiment.config)
        self.results: Sequence[TrialResult] = ()

    def poll(self) -> list[TrialNews]:
        """Return the news since the last call, by trial. Of a trial's validations, only the latest is included."""
        before = {result.trial.id: result for result in self.results}
        self.experiment = self.store.experiment(self.experiment.id)
        self.results = self.store.trial_results(self.experiment.id)
        return [news for result in self.results for news in self._news(before.get(result.trial.id), result)]

    @property
    def best(self) -> TrialResult | None:
        """Trial with the best validation, or None before the first validation. The earliest wins a tie."""
        scored = [(result.best.value, result) for result in self.results if result.best]
        sign = 1 if self.smaller_is_better else -1
        return min(scored, key=lambda one: sign * one[0], default=(0, None))[1]

    @property
    def states(self) -> Mapping[str, int]:
        """Number of trials in each state, by its word of `STATE_WORDS` or `STOPPED_EARLY`."""
        return Counter(self._word(result.trial) for result in self.results)

    @property
    def rungs(self) -> Mapping[int, tuple[int, int]]:
        """Numbers of trials that have trained to a length and that will train at least to it, by length in ``unit``.

        The lengths are those that trials have at present.
        """
        asked = [(result.trial, result.trial.searcher_length or 0) for result in self.results]
        return {
            rung: (
                sum(length > rung or (length == rung and _reached(trial)) for trial, length in asked),
                sum(length >= rung for _, length in asked),
            )
            for rung in sorted({length for _, length in asked} - {0})
        }

    def _word(self, trial: TrialRecord) -> str:
        return STOPPED_EARLY if is_stopped_early(trial, self.experiment.config) else STATE_WORDS[trial.state]

    def _news(self, before: TrialResult | None, now: TrialResult) -> Iterator[TrialNews]:
        trial, old = now.trial, before.trial if before else None
        if now.latest and now.latest != (before.latest if before else None):
            value = f"{printable_text(self.metric)}={format_value(now.latest.value)}"
            yield self._tell(now, f"batch {now.latest.steps_completed} validation {value}", routine=True)
        if not trial.state.final and trial.restarts > (old.restarts if old else 0):
            yield self._tell(now, f"a run failed ({trial.restarts} so far); to see why: det trial logs {trial.id}")
        if not trial.state.final and trial.interruptions > (old.interruptions if old else 0):
            yield self._tell(
                now, f"a run was interrupted ({trial.interruptions} so far); to see why: det trial logs {trial.id}"
            )
        if trial.state.final and not (old and old.state.final):
            best = f", best {printable_text(self.metric)}={format_value(now.best.value)}" if now.best else ""
            why = f"; to see why: det trial logs {trial.id}" if trial.state is State.ERROR else ""
            length = format_count(trial.steps_completed, "batch", "batches")
            yield self._tell(now, f"{self._word(trial)} after {length}{best}{why}")

    def _tell(self, result: TrialResult, words: str, *, routine: bool = False) -> TrialNews:
        return TrialNews(result.trial.id, f"trial {result.trial.id}: {words}", routine)


def _reached(trial: TrialRecord) -> bool:
    """Return whether a trial has trained to its present length."""
    return trial.ordered is None and trial.state not in (State.ERROR, State.CANCELED)


def _unit(config: Mapping[str, Any]) -> str:
    """Return the unit of the lengths of a search, or "" if its config names none."""
    from det_core.config import Unit

    searcher = config.get("searcher") or {}
    lengths = [value for key, value in searcher.items() if isinstance(value, Mapping) and key != "options"]
    return searcher.get("unit") or next((unit.value for unit in Unit for length in lengths if unit.value in length), "")
