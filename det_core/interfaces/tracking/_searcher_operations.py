"""Interface of the searcher operations in the tracking store."""

from __future__ import annotations

from abc import ABC, abstractmethod

from det_core.interfaces.records import SearcherOperationRecord
from det_core.interfaces.tracking._rights import Reach, reads, writes


class SearcherOperationStore(ABC):
    """The part of a `TrackingStore` that handles searcher operations, at most one per trial."""

    @writes(is_report=True)
    @abstractmethod
    def set_searcher_operation(self, trial_id: int, length: int, *, lease: str = "") -> None:
        """Order the trial to train up to ``length`` (> 0). An operation of the same length stays as it is."""

    @reads
    @abstractmethod
    def searcher_operation(self, trial_id: int) -> SearcherOperationRecord | None:
        """Return the operation set last, or None before the first."""

    @writes(Reach.RUN, is_report=True)
    @abstractmethod
    def complete_searcher_operation(self, trial_id: int, run_id: int, length: int, metric: float) -> None:
        """Record that the run has trained up to ``length``, with this value of the searcher's metric.

        Raises:
            TrackingError: the operation has another length, or was completed before.
        """
