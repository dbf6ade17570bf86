"""Events of one experiment in one process, on their way to hooks and observers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from det_core import events, plugins, storage
from det_core.errors import CheckpointNotFound, StorageError
from det_core.interfaces.records import searcher_metric
from det_core.interfaces.secrets import hide_secrets

if TYPE_CHECKING:
    from det_core.core.observer_thread import ObserverThread
    from det_core.interfaces.observer import FetchFiles, Place
    from det_core.interfaces.records import CheckpointRecord, MetricsReport, State, TrialRecord
    from det_core.interfaces.storage import StorageManager
    from det_core.interfaces.tracking import TrackingStore

_log = logging.getLogger("det.observers")

END_TIMEOUT = 20.0
"""Seconds that the end of a process waits for all of its observers together."""


def describe_error(error: BaseException | None) -> str | None:
    """Return an error as ``Class: message`` in one line, or None if it is none."""
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return None
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


class EventStream:
    """Distributor of the events of one experiment to event hooks and to the observers that the config names.

    Args:
        place: kind of this process.
        cluster_id: id of the tracking store.
        experiment_id: id of the experiment.
        config: its complete config as recorded, with references to secrets.
        trial: ``trial_id``, ``run_id`` and ``hparams`` of the only trial of this process, which is empty in a runner.
        fetch_files: function that copies stored files.
        fetch_metrics: function that reads the metrics of the trial.
        observed: whether this process has observers.
        waits_for_report: whether starts and ends are held back until something is reported, because the scan for
            plugins would delay scripts that report nothing.
    """

    def __init__(
        self,
        place: Place,
        *,
        cluster_id: str,
        experiment_id: int,
        config: Mapping[str, Any],
        fetch_files: FetchFiles,
        fetch_metrics: Callable[[], Iterable[MetricsReport]] = tuple,
        trial: Mapping[str, Any] | None = None,
        observed: bool = True,
        waits_for_report: bool = False,
    ) -> None:
        self._place = place
        self._cluster_id = cluster_id
        self._experiment_id = experiment_id
        self._config = config
        self._fetch_files = fetch_files
        self._fetch_metrics = fetch_metrics
        self._trial = trial or {}
        self._blocks: Mapping[str, Any] = config.get("observers") or {} if observed else {}
        self._held: list[tuple[type[events.Event], dict[str, Any]]] | None = [] if waits_for_report else None
        self._observers: list[ObserverThread] = []

    @cached_property
    def shown_config(self) -> Mapping[str, Any]:
        """Complete config of the experiment, without secrets."""
        shown: Mapping[str, Any] = hide_secrets(self._config)
        return shown

    def open(self) -> None:
        """Start the observers."""
        if not self._blocks:
            return
        from det_core.core.observer_thread import ObserverThread
        from det_core.interfaces.observer import ObserverContext

        context = ObserverContext(
            place=self._place,
            cluster_id=self._cluster_id,
            experiment_id=self._experiment_id,
            config=self.shown_config,
            trial_id=self._trial.get("trial_id"),
            run_id=self._trial.get("run_id"),
            fetch_files=self._fetch_files,
            fetch_metrics=self._fetch_metrics,
        )
        self._observers = [ObserverThread(name, block, context) for name, block in self._blocks.items()]
        for observer in self._observers:
            observer.start()

    def emit(self, kind: type[events.Event], **fields: Any) -> None:
        """Send an event to all hooks and observers that receive this kind. It is not even created if there are none.

        Hooks are called before this method returns.

        Args:
            kind: type of the event.
            **fields: its fields, except for those of the experiment and of the only trial of this process.
        """
        if self._held is not None:
            held, self._held = self._held, None
            if issubclass(kind, events.STARTS_AND_ENDS):
                self._held = [*held, (kind, fields)]
                return
            for earlier in held:
                self._send(earlier[0], **earlier[1])
        self._send(kind, **fields)

    def has_receivers(self, kind: type[events.Event]) -> bool:
        """Return whether a hook or an observer receives events of this kind."""
        return any(observer.wants(kind) for observer in self._observers) or plugins.has_event_hooks(kind.name)

    def checkpoint_deleted(self, checkpoint: CheckpointRecord) -> None:
        """Send the event that a checkpoint was deleted.

        Args:
            checkpoint: the checkpoint.
        """
        self.emit(
            events.CheckpointDeleted,
            storage_id=checkpoint.uuid,
            experiment_id=self._experiment_id,
            trial_id=checkpoint.trial_id,
        )

    def trial_finished(self, store: TrackingStore, trial: TrialRecord, error: str | None) -> None:
        """Send the event that a trial has reached a final state.

        Args:
            store: the tracking store, which knows the trial's best validation.
            trial: the trial.
            error: reason for the state ERROR.
        """
        best = self._best_validation(events.TrialFinished, store, trial.id)
        self.emit(
            events.TrialFinished,
            trial_id=trial.id,
            run_id=trial.run_id,
            hparams=trial.hparams,
            state=trial.state,
            error=error,
            steps_completed=trial.steps_completed,
            best=best and best[0],
        )

    def experiment_finished(self, store: TrackingStore, state: State, error: str | None) -> None:
        """Send the event that the experiment has ended or was paused.

        Args:
            store: the tracking store, which knows the best validation.
            state: state of the experiment.
            error: reason for the state.
        """
        best = self._best_validation(events.ExperimentFinished, store)
        value, trial_id = best[:2] if best else (None, None)
        self.emit(events.ExperimentFinished, state=state, error=error, best_trial_id=trial_id, best=value)

    def close(self) -> None:
        """End the observers, and log how many events were lost.

        Wait for all of them together up to `END_TIMEOUT` seconds, or as long as one of them asks for.
        """
        began = time.monotonic()
        observers, self._observers = self._observers, []
        for observer in observers:
            observer.end()
        for observer in observers:
            timeout = max(END_TIMEOUT, observer.end_timeout)
            observer.join(max(began + timeout - time.monotonic(), 0))
        if self._held is None:
            plugins.report_failed_hooks()

    def _best_validation(
        self, kind: type[events.Event], store: TrackingStore, trial_id: int | None = None
    ) -> tuple[float, int, int] | None:
        """Return the best validation for an event of this kind, or None if nothing receives the event."""
        metric, smaller_is_better = searcher_metric(self._config)
        if self._held is not None or not (metric and self.has_receivers(kind)):
            return None
        return store.best_validation(
            self._experiment_id, metric, smaller_is_better=smaller_is_better, trial_id=trial_id
        )

    def _send(self, kind: type[events.Event], **fields: Any) -> None:
        observers = [observer for observer in self._observers if observer.wants(kind)]
        has_hooks = plugins.has_event_hooks(kind.name)
        if not (observers or has_hooks):
            return
        if issubclass(kind, events.ExperimentEvent):
            fields = {"experiment_id": self._experiment_id, "config": self.shown_config, **fields}
        if issubclass(kind, events.TrialEvent):
            fields = {**self._trial, **fields}
        event = kind(**fields)
        for observer in observers:
            observer.submit(event)
        if has_hooks:
            plugins.emit_event(event)


def make_fetch_files(open_manager: Callable[[], StorageManager]) -> FetchFiles:
    """Return a function for observers that copies stored files.

    Args:
        open_manager: function that returns the storage.
    """

    def fetch_files(storage_id: str, directory: Path, paths: Sequence[str] | None = None) -> None:
        manager = open_manager()
        if paths is None:
            storage.restore_checkpoint(manager, storage_id, directory)
            return
        for path in paths:
            if not storage.is_inside(path):
                raise StorageError(f"{path!r} is not a path inside of {storage_id}")
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                if not path.endswith("/"):
                    manager.get(storage_id, path, target)
            except FileNotFoundError as error:
                raise CheckpointNotFound(f"{path!r} of {storage_id} is not stored any more") from error

    return fetch_files
