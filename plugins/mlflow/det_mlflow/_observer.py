"""Observer that records an experiment in MLflow."""

from __future__ import annotations

import getpass
import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from det_core import events
from det_core.interfaces.observer import Observer, ObserverContext
from det_core.interfaces.records import State
from det_mlflow._client import MLflowClient, MLflowError, ServerUnreachableError
from det_mlflow._config import MLflowConfig
from det_mlflow._run_directory import STATE_TAG, RunDeletedError, RunDirectory
from det_mlflow._run_recorder import RunRecorder

_log = logging.getLogger("det.mlflow")

STATUS = {
    State.COMPLETED: "FINISHED",
    State.CANCELED: "KILLED",
    State.ERROR: "FAILED",
    State.PAUSED: "SCHEDULED",
}
"""MLflow's status of a run by the state of what it stands for. MLflow has no status for what is paused."""
_ERROR_TAG = "det.error"
_CHECKPOINT_TAG = "det.checkpoint."
_LONGEST_PAUSE = 30.0
_COPY_TIMEOUT = 1800.0
"""Number of seconds that a process which ends may take to copy its last checkpoints."""
_LAST_ATTEMPTS = 5.0
"""Number of seconds that a process which ends waits for a server that is away."""


class MLflowObserver(Observer):
    """Observer that records each trial as a run, and a search as their parent run.

    After a failed request, nothing is sent for a while, which doubles with each failure.

    Args:
        config: the config block.
    """

    def __init__(self, config: MLflowConfig) -> None:
        self._config = config
        self._client = MLflowClient(config)
        if config.checkpoints == "copy":
            self.end_timeout = _COPY_TIMEOUT
        self._recorders: dict[int | None, RunRecorder] = {}
        self._notices: set[str] = set()
        self._pause = 0.0
        self._failed_at = float("-inf")
        self._away_since: float | None = None

    def open(self, context: ObserverContext) -> None:
        config = context.config
        self._context = context
        self._runs = RunDirectory(self._client, self._config.experiment_name or config.get("name") or "det")
        # A script has no runner, which is the only process that may create the parent.
        self._has_parent = context.is_search
        self._linked: set[int] = set()
        self._unfinished: set[int] = set()

    def experiment_started(self, event: events.ExperimentStarted) -> None:
        if self._has_parent:
            parent = self._recorder(None)
            parent.set_tags(self._common_tags() | {STATE_TAG: "RUNNING"})
            parent.set_status("RUNNING")
            if event.resumed:
                parent.remove_tag(_ERROR_TAG)
            parent.add_file("det/config.json", _config_file(event.config))

    def experiment_finished(self, event: events.ExperimentFinished) -> None:
        if event.state is State.PAUSED:  # workers may have been killed
            for trial_id in self._unfinished:
                self._finish(self._recorder(trial_id), event.state, None)
        if self._has_parent:
            self._finish(self._recorder(None), event.state, event.error)

    def trial_started(self, event: events.TrialStarted) -> None:
        self._unfinished.add(event.trial_id)

    def worker_started(self, event: events.WorkerStarted) -> None:
        trial = self._describe(event)
        trial.set_tags({STATE_TAG: "RUNNING"})
        trial.set_status("RUNNING")
        if event.run_id > 1:
            trial.remove_tag(_ERROR_TAG)
        if not self._has_parent:
            trial.add_file("det/config.json", _config_file(event.config))

    def worker_finished(self, event: events.WorkerFinished) -> None:
        if event.preempted:
            self._finish(self._recorder(event.trial_id), State.PAUSED, None)

    def trial_finished(self, event: events.TrialFinished) -> None:
        self._unfinished.discard(event.trial_id)
        trial = self._describe(event)
        trial.create = True  # its workers have ended
        self._finish(trial, event.state, event.error)

    def metrics_reported(self, event: events.MetricsReported) -> None:
        self._recorder(event.trial_id).add_metrics(
            f"{event.group}/", event.metrics, event.steps_completed, event.time.timestamp()
        )

    def checkpoint_saved(self, event: events.CheckpointSaved) -> None:
        description = {
            "location": event.location,
            "steps_completed": event.steps_completed,
            "files": len(event.resources),
            "size": sum(event.resources.values()),
        }
        trial = self._recorder(event.trial_id)
        trial.set_tags({_CHECKPOINT_TAG + event.storage_id: json.dumps(description, ensure_ascii=False)})
        if self._config.checkpoints == "copy":
            trial.add_checkpoint(event.storage_id, self._context.fetch_files)

    def checkpoint_deleted(self, event: events.CheckpointDeleted) -> None:
        if event.trial_id is not None:
            self._recorder(event.trial_id).remove_tag(_CHECKPOINT_TAG + event.storage_id)

    def flush(self) -> None:
        if time.monotonic() >= self._failed_at + self._pause:
            self._send_all()

    def close(self) -> None:
        try:
            self._send_before_end()
        finally:
            for recorder in self._recorders.values():
                if lost := recorder.lost + recorder.waiting:
                    _log.warning("%d items of %s are not in MLflow at %s", lost, recorder.label, self._client.address)

    def _send_before_end(self) -> None:
        """Send everything. Repeat this for a while, unless the server has been away for longer already."""
        deadline = (self._away_since or time.monotonic()) + _LAST_ATTEMPTS
        self._client.timeout = min(self._client.timeout, _LAST_ATTEMPTS)
        while True:
            try:
                return self._send_all()
            except MLflowError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.5)

    def _send_all(self) -> None:
        try:
            self._link_to_parent()
            self._send_each()
        except MLflowError:
            self._failed_at = time.monotonic()
            self._away_since = self._away_since or self._failed_at
            self._pause = min(max(1.0, 2 * self._pause), _LONGEST_PAUSE)
            raise
        if self._pause:
            _log.info("MLflow at %s can be reached again", self._client.address)
        self._pause, self._away_since = 0.0, None

    def _send_each(self) -> None:
        """Send the data of each run. One that the server cannot handle does not hold up the others."""
        failures = []
        for recorder in self._recorders.values():
            try:
                recorder.send()
            except ServerUnreachableError:
                raise
            except MLflowError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _link_to_parent(self) -> None:
        """Name the parent in the runs of its trials, as soon as the runner has created it."""
        unlinked = [trial for trial in self._recorders if trial is not None and trial not in self._linked]
        if not self._has_parent or not unlinked:
            return
        try:
            parent = self._recorder(None).find()
        except RunDeletedError:
            self._has_parent = False
            return
        if parent:
            for trial in unlinked:
                self._recorders[trial].set_tags({"mlflow.parentRunId": parent.run_id})
            self._linked.update(unlinked)

    def _recorder(self, trial_id: int | None) -> RunRecorder:
        """Return the recorder of a trial, or that of the experiment if there is no trial."""
        if trial_id not in self._recorders:
            kind, number = ("experiment", self._context.experiment_id) if trial_id is None else ("trial", trial_id)
            label = f"{kind} {number}"
            self._recorders[trial_id] = RunRecorder(
                self._client,
                self._runs,
                key=f"{self._context.cluster_id}/{kind}/{number}",
                label=label,
                name=label if trial_id is not None else self._context.config.get("name") or label,
                notify=self._notify,
                # Two processes must not create the same run at the same time.
                create=self._context.trial_id == trial_id and self._context.place != "client",
            )
        return self._recorders[trial_id]

    def _describe(self, event: events.TrialEvent) -> RunRecorder:
        """Return the recorder of a trial with its tags and parameters."""
        trial = self._recorder(event.trial_id)
        trial.add_parameters(event.hparams)
        trial.set_tags(self._common_tags() | {"det.trial_id": str(event.trial_id), "det.run_id": str(event.run_id)})
        return trial

    def _common_tags(self) -> dict[str, str]:
        config = self._context.config
        entrypoint = config.get("entrypoint") or ""
        return {
            **self._config.tags,
            "det.cluster_id": self._context.cluster_id,
            "det.experiment_id": str(self._context.experiment_id),
            "mlflow.source.name": entrypoint if isinstance(entrypoint, str) else " ".join(entrypoint),
            "mlflow.source.type": "JOB",
            "mlflow.user": _user_name(),
        }

    def _finish(self, recorder: RunRecorder, state: State, error: str | None) -> None:
        recorder.set_tags({STATE_TAG: state.value} | ({_ERROR_TAG: error} if error else {}))
        recorder.set_status(STATUS[state], time.time() if state.final else None)

    def _notify(self, text: str) -> None:
        if text not in self._notices:
            self._notices.add(text)
            _log.warning("%s", text)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run under a number without a name
        return "unknown"


def _config_file(config: Mapping[str, Any]) -> bytes:
    return json.dumps(config, indent=2, ensure_ascii=False).encode(errors="replace")
