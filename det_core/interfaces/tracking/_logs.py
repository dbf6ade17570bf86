"""Interface of the logs in the tracking store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from det_core.interfaces.records import LogLine
from det_core.interfaces.tracking._rights import reads, writes


class LogStore(ABC):
    """The part of a `TrackingStore` that handles log lines."""

    @writes(is_report=True)
    @abstractmethod
    def add_logs(self, lines: Sequence[LogLine]) -> None:
        """Append log lines. Their ``id`` is ignored."""

    @reads
    @abstractmethod
    def logs(
        self,
        trial_id: int,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> list[LogLine]:
        """Return the log lines of a trial in the order of their ids.

        Args:
            after: include only ids greater than this.
            before: include only ids less than this.
            limit: maximum number of lines.
            newest: whether the limit keeps the last lines instead of the first ones.
        """

    @reads
    @abstractmethod
    def latest_logs(self, experiment_id: int) -> dict[int, int]:
        """Return the id of the latest log line of each trial, or 0 for a trial without lines."""
