"""Interface of the metrics, system metrics and logs in the tracking store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from det_core.interfaces.records import MAX_STEPS, LogLine, MetricsReport, MetricValues, SystemMetrics
from det_core.interfaces.tracking._rights import Reach, reads, writes


class MetricsStore(ABC):
    """The part of a `TrackingStore` that handles the metrics of trials."""

    @writes(Reach.RUN, is_report=True)
    @abstractmethod
    def report_metrics(self, reports: Sequence[MetricsReport]) -> None:
        """Write all reports in order in one transaction, or none of them.

        The keys of all reports for one (trial, group, step) are merged. A key reported again must have the same value.
        A run's first report in a group archives the reports of older runs in this group at that step or later. Further
        reports of the run archive those at the same step. Other groups are not affected, because they may count in
        another unit. NaN and infinities are kept. The strings "NaN", "Infinity" and "-Infinity" are read back as these
        numbers.

        Raises:
            MetricsConflict: a key has another value, or batch metrics were reported twice. The message names the key.
            CallTooLarge: the reports have more than 10,000 steps, or more than 100 groups, counted for each trial.
            ValueError: the group is empty or contains ``.``, or ``epoch`` or ``epochs`` is not a number.
            StaleRun: a newer run of the trial exists.
        """

    @reads
    @abstractmethod
    def metrics(
        self, trial_id: int, *, group: str | None = None, after: int = -1, archived: bool = False
    ) -> Iterator[MetricsReport]:
        """Return the reports of a trial by step, then group.

        Args:
            group: include only this group.
            after: include only steps greater than this.
            archived: return only archived reports instead of only the others.
        """

    @reads
    @abstractmethod
    def best_validation(
        self, experiment_id: int, metric: str, *, smaller_is_better: bool, trial_id: int | None = None
    ) -> tuple[float, int, int] | None:
        """Return the best finite value of a validation metric over the experiment, or None if there is none.

        Args:
            experiment_id: the experiment.
            metric: name of the metric.
            smaller_is_better: whether smaller values are better.
            trial_id: include only this trial of the experiment.

        Returns:
            The value, the trial id and the step.
        """

    @reads
    @abstractmethod
    def curves(
        self,
        trial_ids: Collection[int],
        metric: str,
        *,
        group: str,
        points: int = 1000,
        extremes: bool = False,
        after: int = -1,
        until: int = MAX_STEPS,
        non_finite: bool = False,
    ) -> dict[int, list[tuple[int, float]]]:
        """Return for each trial the (step, value) pairs of a metric by step, wherever the value is a finite number.

        A trial with at most ``points`` reports in the group has all its values. A longer one has at most
        ``points + 1``: the first value, then always the first one at least 1/``points`` of the trial's steps later,
        and the last value. A minimum or maximum in between may be missing, because only reading every report would
        find it.

        Args:
            trial_ids: the trials, in the order of the result.
            metric: name of the metric.
            group: group of the metric.
            points: number of points to which long curves are reduced, at least 1.
            extremes: whether to read every report and keep extremes. A trial with more than ``points`` reports then has
                at most ``2 * points + 2`` values: the first, the last, and the least and the greatest of each interval
                of 1/``points`` of the trial's steps.
            after: read only reports of later steps than this.
            until: read only reports of steps up to and including this.
            non_finite: whether to return values that are NaN or infinite, too. With ``extremes``, these are the first
                of each interval.

        Raises:
            ValueError: ``points`` is less than 1.
            CallTooLarge: the name of the metric has more than 4,000 characters.
        """

    @reads
    @abstractmethod
    def divergences(self, trial_ids: Collection[int], metric: str, *, group: str) -> dict[int, tuple[int, float]]:
        """Return since when a metric of trials is NaN or infinite.

        A metric that none of the last 100 reports of its group has is not found.

        Args:
            trial_ids: the trials. Those that do not exist are ignored.
            metric: name of the metric.
            group: group of the metric.

        Returns:
            The step and the value of the first report after the last finite number, for each trial with such a report.
        """

    @reads
    @abstractmethod
    def metric_values(
        self, trial_ids: Collection[int], metrics: Sequence[str], *, group: str, until: int = MAX_STEPS
    ) -> dict[int, dict[str, MetricValues]]:
        """Return the newest, the least and the greatest value of metrics, by trial and name of the metric.

        Trials and metrics without any value are left out.

        Args:
            trial_ids: the trials. Those that do not exist are ignored.
            metrics: names of the metrics, at most 100.
            group: group of the metrics.
            until: read only reports of steps up to and including this.

        Raises:
            CallTooLarge: there are more metrics, or reading them takes too long.
        """

    @reads
    @abstractmethod
    def metric_names(self, trial_ids: Collection[int]) -> dict[str, list[str]]:
        """Return the names of metrics that are numbers, sorted, by group.

        Only the first and the last reports of each trial are read, and only those of some trials if there are many, so
        a metric that is reported rarely may be missing.
        """

    @writes(Reach.RUN, is_report=True)
    @abstractmethod
    def report_system_metrics(self, samples: Sequence[SystemMetrics]) -> None:
        """Add the samples in one transaction. Their ``id`` is ignored.

        Raises:
            CallTooLarge: there are more than 10,000.
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
