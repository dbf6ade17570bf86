"""Observer that is called as det calls it, without a runner and workers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from det_mlflow._config import MLflowConfig
from det_mlflow._observer import MLflowObserver

from det_core import events
from det_core.interfaces.observer import ObserverContext
from det_core.interfaces.records import State

from .server import MLflowServer, Run

BEGIN = datetime(2026, 1, 2, tzinfo=timezone.utc)
HPARAMS = {"lr": 0.1, "optimizer": {"name": "sgd", "betas": [0.9, 0.99]}}


class Observation:
    """Observer of an experiment in one process, and the runs that it records."""

    def __init__(
        self, server: MLflowServer, place: Any, cluster_id: str, name: str, trial_id: int, options: Mapping[str, Any]
    ) -> None:
        self._server, self.name = server, name
        self.stored: Mapping[str, bytes] = {}
        self.config: dict[str, Any] = {"name": name, "searcher": {"name": "random"}, "entrypoint": "model_def:Trial"}
        self.observer = MLflowObserver(MLflowConfig.model_validate(options))
        self._common: dict[str, Any] = {"experiment_id": 7, "config": self.config}
        only_trial = trial_id if place == "worker" else None
        self.observer.open(
            ObserverContext(
                place=place, cluster_id=cluster_id, trial_id=only_trial, fetch_files=self._fetch, **self._common
            )
        )

    @property
    def runs(self) -> list[Run]:
        return self._server.runs(self.name)

    @property
    def run(self) -> Run:
        """The only run of trial 3."""
        (run,) = (run for run in self.runs if run.name == "trial 3")
        return run

    def send(self, kind: type[events.Event], **fields: Any) -> events.Event:
        """Deliver an event, with defaults for what all events of its kind have, and return it."""
        given: dict[str, Any] = {}
        if issubclass(kind, events.ExperimentEvent):
            given = {**self._common}
        if issubclass(kind, events.TrialEvent):
            given |= {"trial_id": 3, "run_id": 1, "hparams": HPARAMS}
        event = kind(**{**given, **fields})
        self.observer.notify(event)
        return event

    def flush(self) -> None:
        """Send everything, without the pause after an error."""
        self.observer._pause = 0
        self.observer.flush()

    def start(self, **fields: Any) -> None:
        self.send(events.WorkerStarted, steps_completed=0, **fields)

    def report(
        self, steps: int, group: str = "training", metrics: Mapping[str, Any] | None = None, **more: Any
    ) -> events.Event:
        return self.send(
            events.MetricsReported,
            group=group,
            steps_completed=steps,
            metrics={**(metrics or {}), **more},
            time=BEGIN + timedelta(seconds=steps),
        )

    def save(
        self, storage_id: str, steps: int = 10, contents: Mapping[str, bytes] | None = None, **more: bytes
    ) -> None:
        self.stored = {**(contents or {}), **more}
        self.send(
            events.CheckpointSaved,
            storage_id=storage_id,
            steps_completed=steps,
            resources={name: len(content) for name, content in self.stored.items()},
            metadata={},
            location=f"file:///checkpoints/{storage_id}",
        )

    def end(self, state: State, error: str | None = None, **fields: Any) -> None:
        self.send(events.TrialFinished, state=state, error=error, **fields)

    def _fetch(self, storage_id: str, directory: Path, paths: object = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in self.stored.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
