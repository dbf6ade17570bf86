"""Observer that records an experiment in Trackio. Importing this module imports Trackio."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from det_core import events
from det_core.interfaces.observer import Observer, ObserverContext
from det_trackio._config import TrackioConfig
from det_trackio._project import RunWriter, TrackioProject


class TrackioObserver(Observer):
    """Observer that records each trial as a run.

    A run is first written anew from the tracking store, which knows what earlier processes did not deliver and which
    of their reports are superseded. Then reports are added. After a failure, or if somebody has deleted the run, it is
    written anew.

    Args:
        config: the config block.
    """

    def __init__(self, config: TrackioConfig) -> None:
        self._config = config
        self._first: events.TrialEvent | None = None
        self._reports: list[events.MetricsReported] = []
        self._is_complete = False

    def open(self, context: ObserverContext) -> None:
        self._context = context
        if context.trial_id is not None:
            self._project = TrackioProject(self._config.project or context.config.get("name") or "det")

    def metrics_reported(self, event: events.MetricsReported) -> None:
        self._first = self._first or event
        self._reports.append(event)

    def flush(self) -> None:
        if self._first is None or (self._is_complete and not self._reports):
            return
        was_complete, self._is_complete = self._is_complete, False
        reports, self._reports = self._reports, []
        with self._project.writing(self._run_id, f"trial {self._first.trial_id}") as run:
            if not (was_complete and run.exists()):
                self._begin(run, self._first)
            for report in reports:
                run.write_metrics(report.group, report.steps_completed, report.metrics, report.time)
        self._is_complete = True

    @property
    def _run_id(self) -> str:
        return f"{self._context.cluster_id}-trial-{self._context.trial_id}"

    def _begin(self, run: RunWriter, first: events.TrialEvent) -> None:
        run.clear()
        run.write_config(self._describe(first.hparams))
        for report in self._context.fetch_metrics():
            run.write_metrics(report.group, report.steps_completed, report.metrics, report.time)

    def _describe(self, hparams: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config of a run, with the ids of det and the keys that Trackio itself adds."""
        context = self._context
        return {
            **hparams,
            "det.cluster_id": context.cluster_id,
            "det.experiment_id": context.experiment_id,
            "det.trial_id": context.trial_id,
            "_Created": datetime.now(timezone.utc).isoformat(),
            "_Group": self._config.group or (f"experiment {context.experiment_id}" if context.is_search else None),
        }
