"""Interface of the system metrics in the tracking store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from det_core.interfaces.records import SystemMetrics
from det_core.interfaces.tracking._rights import Reach, reads, writes


class SystemMetricsStore(ABC):
    """The part of a `TrackingStore` that handles measurements of the hosts that trials run on."""

    @writes(Reach.RUN, is_report=True)
    @abstractmethod
    def report_system_metrics(self, samples: Sequence[SystemMetrics]) -> None:
        """Add the samples in one transaction. Their ``id`` is ignored.

        Raises:
            StaleRun: a newer run of the trial exists.
        """

    @reads
    @abstractmethod
    def system_metrics(
        self, trial_id: int, *, group: str | None = None, after: int = 0, limit: int | None = None
    ) -> list[SystemMetrics]:
        """Return the samples of all runs of a trial, in the order of their ids.

        Args:
            group: include only this group.
            after: include only ids greater than this.
            limit: maximum number of samples.
        """
