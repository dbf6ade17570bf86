"""Interface of the searches in the tracking store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from det_core.interfaces.records import SearchEvent, TrialRecord, TrialUpdate
from det_core.interfaces.tracking._rights import reads, writes


class SearchEventStore(ABC):
    """The part of a `TrackingStore` that handles searches.

    A search is an append-only log of the events that its method received. Searches are resumed from it.
    """

    @writes(is_report=True)
    @abstractmethod
    def record_search(
        self,
        experiment_id: int,
        events: Sequence[SearchEvent],
        trials: Sequence[TrialUpdate],
        *,
        snapshot: Any = None,
        lease: str = "",
    ) -> list[TrialRecord]:
        """Append search events and apply everything that follows from them, in one transaction.

        More than 10,000 trials are changed in several transactions, the last of which appends the events. If it is
        never made, the same call can be repeated.

        Requests to end a trial stay in place, and final states have the same effects, as in
        `TrackingStore.set_trial_state`.

        Args:
            events: events to append, numbered consecutively after the last one.
            trials: changes to the trials of the search.
            snapshot: JSON-compatible state of the method after the events. None keeps the previous snapshot.

        Returns:
            The changed trials, in the order of ``trials``.

        Raises:
            CallTooLarge: there are more than 10,000 events.
            TrackingError: an event with the same number exists, or there is a snapshot without events.
        """

    @writes(needs_owner=True)
    @abstractmethod
    def forget_search(self, experiment_id: int, *, lease: str = "") -> None:
        """Delete the events, the snapshot and the orders to train of a search, so that it starts over.

        Trials that have not ended become CANCELED until the search creates them again (`TrialUpdate.new`).
        """

    @reads
    @abstractmethod
    def search_snapshot(self, experiment_id: int) -> tuple[int, Any] | None:
        """Return the latest snapshot with the number of events before it, or None before the first snapshot.

        Returns:
            The number of events, and the method's state after them.
        """

    @reads
    @abstractmethod
    def search_events(self, experiment_id: int, *, start: int = 0) -> list[SearchEvent]:
        """Return the events from number ``start`` on, in order."""
