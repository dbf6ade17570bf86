"""Interface of an observer, which passes the events of experiments on to another system."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from det_core import events
from det_core.interfaces.records import MetricsReport

__all__ = ["FetchFiles", "Observer", "ObserverContext", "Place"]

Place = Literal["runner", "worker", "script", "client"]
"""Process that an observer lives in: the ``runner`` of an experiment, the chief ``worker`` of a run of a trial, a
``script`` without a runner, which sends the events of both, or a ``client`` such as ``det model register-version``."""


class FetchFiles(Protocol):
    """Function that copies stored files into a local directory."""

    def __call__(self, storage_id: str, directory: Path, paths: Sequence[str] | None = None) -> None:
        """Copy files of a checkpoint, or of other stored artifacts, into a directory.

        Args:
            storage_id: ``storage_id`` of the event.
            directory: the directory, which is created if necessary.
            paths: keys of ``resources`` of the event. None = a whole checkpoint, whose checksums are verified.

        Raises:
            StorageError: the storage cannot be read, or has no such files.
        """


@dataclass(frozen=True, kw_only=True)
class ObserverContext:
    """Process that an observer is opened in."""

    place: Place
    """The kind of the process."""
    cluster_id: str
    """Id of the tracking store. Ids of experiments and trials are unique only within one store."""
    experiment_id: int
    """Id of the experiment."""
    config: Mapping[str, Any] = field(repr=False)
    """Complete experiment config, without secrets."""
    trial_id: int | None = None
    """Id of the trial, or None in a runner."""
    run_id: int | None = None
    """Number of the run within the trial, or None in a runner."""
    fetch_files: FetchFiles = field(repr=False)
    """Function that copies stored files into a local directory."""
    fetch_metrics: Callable[[], Iterable[MetricsReport]] = field(default=tuple, repr=False)
    """Function that reads the trial's metrics from the tracking store, by step: those of earlier runs up to the
    checkpoint that this run starts from, and those of this run. It returns none in a runner or client."""

    @property
    def is_search(self) -> bool:
        """Whether a runner creates the trials of the experiment by a search method, so that they form a group."""
        return self.place != "script" and bool(self.config["searcher"]["name"] != "single")


class Observer:
    """Receiver of the events of one experiment in one process.

    ``target(config)`` creates it with the validated block ``observers.NAME``. All calls of an object come from one
    thread of its own, in this order: ``open``, then events and ``flush``, and finally ``close``. That includes the
    import of the module and the constructor. Training never waits for these calls. The end of the process waits for
    them for a limited time. If a call raises an error, the error is logged once and counted, and later calls are made
    all the same. The log shows the message of a `DetError`, and the traceback of any other. If the import, the
    constructor or ``open`` fails, the object receives nothing.

    Subclasses override the methods of the events that they need. Events that a class neither overrides nor receives
    through an overridden ``notify`` cost nothing.
    """

    end_timeout: float = 0.0
    """Seconds that the end of the process waits for this observer if it needs more than 20, such as for large files."""

    def open(self, context: ObserverContext) -> None:
        """Prepare to receive events.

        Args:
            context: the process, and access to stored files.
        """

    def notify(self, event: events.Event) -> None:
        """Receive any event. The default calls the method with the event's name.

        Args:
            event: the event.
        """
        getattr(self, event.name)(event)

    def flush(self) -> None:
        """Send what previous calls have collected.

        Called after every batch of events, about once per second while there are events, and before ``close``. After
        the first events, it is called every 10 seconds even if nothing happens, so that what an earlier call could not
        send is not kept until the next event.

        If a request fails, keep what was not sent for the next call, up to a limit, and raise the error, which is
        logged or counted. No call follows the one before ``close``.
        """

    def close(self) -> None:
        """Release everything that ``open`` has acquired. Called once after ``open``, even if other calls failed."""

    def experiment_started(self, event: events.ExperimentStarted) -> None:
        """The runner has taken the experiment. Sent in the runner."""

    def experiment_finished(self, event: events.ExperimentFinished) -> None:
        """The experiment has ended or was paused. Sent in the runner."""

    def trial_started(self, event: events.TrialStarted) -> None:
        """A run of a trial is about to be launched, or goes on with another runner. Sent in the runner."""

    def trial_finished(self, event: events.TrialFinished) -> None:
        """A trial has reached a final state. Sent in the runner."""

    def worker_started(self, event: events.WorkerStarted) -> None:
        """The chief worker has started. Sent in the worker."""

    def worker_finished(self, event: events.WorkerFinished) -> None:
        """The chief worker has finished or failed. Sent in the worker."""

    def logs_recorded(self, event: events.LogsRecorded) -> None:
        """Lines of the log were recorded. Sent in the runner."""

    def metrics_reported(self, event: events.MetricsReported) -> None:
        """Metrics were recorded. Sent in the worker."""

    def checkpoint_saved(self, event: events.CheckpointSaved) -> None:
        """A checkpoint is complete. Sent in the worker."""

    def checkpoint_deleted(self, event: events.CheckpointDeleted) -> None:
        """A checkpoint was deleted. Sent in the process that deletes it."""

    def artifacts_stored(self, event: events.ArtifactsStored) -> None:
        """Files of the TensorBoard directory were stored. Sent in the worker."""

    def preemption_requested(self, event: events.PreemptionRequested) -> None:
        """The trial was asked to stop. Sent in the worker."""

    def model_version_registered(self, event: events.ModelVersionRegistered) -> None:
        """A checkpoint was registered as a version of a model. Sent in the process that registers it."""


def received_events(target: type[Observer]) -> list[str]:
    """Return the names of the events that a class of observers receives.

    Args:
        target: the class.
    """
    names = [event.name for event in events.EVENTS]
    if target.notify is not Observer.notify:
        return names
    return [name for name in names if getattr(target, name) is not getattr(Observer, name)]
