"""Interface of the logs in the tracking store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime

from det_core.interfaces.records import LogLine
from det_core.interfaces.tracking._rights import reads, writes


class LogStore(ABC):
    """The part of a `TrackingStore` that handles log lines."""

    @writes(is_report=True)
    @abstractmethod
    def add_logs(self, lines: Sequence[LogLine]) -> None:
        """Append log lines. Their ``id`` is ignored.

        Raises:
            CallTooLarge: there are more than 10,000.
        """

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
        ranks: Collection[int] = (),
        stdtype: str = "",
        level: str = "",
        search: str = "",
        earliest: datetime | None = None,
        latest: datetime | None = None,
    ) -> list[LogLine]:
        """Return the log lines of a trial in the order of their ids.

        Args:
            after: include only ids greater than this.
            before: include only ids less than this.
            limit: maximum number of lines.
            newest: whether the limit keeps the last lines instead of the first ones.
            ranks: include only lines of workers with these ranks; empty for all lines, also those of the runner.
            stdtype: include only lines of this stream; "" for all.
            level: include only lines of this level and more severe ones; "" for all.
            search: include only lines that contain this text, ignoring case; "" for all.
            earliest: include only lines that were received after this time.
            latest: include only lines that were received before this time.

        Raises:
            ValueError: there is no such level, or the text is too long.
            CallTooLarge: finding the lines takes too long. `log_parts` of `det_core.tracking.log_reading` avoids this.
        """

    @reads
    @abstractmethod
    def latest_logs(self, experiment_id: int) -> dict[int, int]:
        """Return the id of the latest log line of each trial, or 0 for a trial without lines."""
