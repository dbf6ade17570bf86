"""What a training loop tells the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from enum import Enum
from functools import partial
from typing import Any

from det_core.core._shipper import Shipper
from det_core.interfaces.tracking import MetricsReport, Run, TrackingStore

TRAINING = "training"
VALIDATION = "validation"


class EarlyExitReason(str, Enum):
    """Why a trial leaves for good before its work is done."""

    INVALID_HP = "EXITED_REASON_INVALID_HP"
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"


class TrainContext:
    """Reports metrics, progress and status. Calls return at once; a background thread writes.

    An error of that thread is raised by the next call, at the latest when the core context exits.
    """

    def __init__(
        self, store: TrackingStore, run: Run, experiment_id: int, searcher_metric: str, *, smaller_is_better: bool
    ) -> None:
        self._store = store
        self._run = run
        self._experiment_id = experiment_id
        self._searcher_metric = searcher_metric
        self._smaller_is_better = smaller_is_better
        self._shipper = Shipper(store)

    def report_training_metrics(
        self,
        steps_completed: int,
        metrics: Mapping[str, Any],
        batch_metrics: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Report training metrics, and optionally those of each batch since the last report.

        Args:
            steps_completed: batches trained since the start of the trial, >= 0.
            metrics: names to JSON-able values; NaN and infinities are kept.
            batch_metrics: one mapping per batch, oldest first.
        """
        self._report(TRAINING, steps_completed, metrics, batch_metrics)

    def report_validation_metrics(self, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Report validation metrics. Arguments as for `report_training_metrics`."""
        self._report(VALIDATION, steps_completed, metrics)

    def report_metrics(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Report metrics of any group, whose name must not be empty or contain ``.``."""
        if not group or "." in group:
            raise ValueError(f"metrics group {group!r} must not be empty or contain '.'; for example 'throughput'")
        self._report(group, steps_completed, metrics)

    def report_progress(self, progress: float) -> None:
        """Report the share of the work that is done, 0 to 1."""
        if not 0 <= progress <= 1:
            raise ValueError(f"progress is {progress}; expected 0 to 1")
        self._shipper.submit_latest(
            "progress", partial(self._store.set_experiment_progress, self._experiment_id, progress)
        )

    def set_status(self, status: str) -> None:
        """Say in a few words what the trial is doing."""
        run = self._run
        self._shipper.submit_latest("status", partial(self._store.set_runner_state, run.trial_id, run.run_id, status))

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        """Record that the trial leaves for good; written before this returns."""
        self._store.report_early_exit(self._run.trial_id, self._run.run_id, reason.value)

    def get_experiment_best_validation(self) -> float | None:
        """The best searcher metric of all trials so far, what was just reported included."""
        self.flush()
        best = self._store.best_validation(
            self._experiment_id, self._searcher_metric, smaller_is_better=self._smaller_is_better
        )
        return None if best is None else best[0]

    def flush(self) -> None:
        """Wait until everything reported so far is in the record."""
        self._shipper.flush()

    def _report(
        self,
        group: str,
        steps_completed: int,
        metrics: Mapping[str, Any],
        batch_metrics: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self._shipper.submit(
            MetricsReport(
                trial_id=self._run.trial_id,
                run_id=self._run.run_id,
                group=group,
                steps_completed=steps_completed,
                metrics=dict(metrics),
                batch_metrics=batch_metrics,
                time=datetime.now(timezone.utc),
            )
        )

    def _start(self) -> None:
        self._shipper.start()

    def _close(self) -> None:
        self._shipper.close()
