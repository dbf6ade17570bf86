"""Data of one MLflow run that is not on the server yet."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from det_core.errors import StorageError
from det_core.interfaces.observer import FetchFiles
from det_core.scratch import scratch_directory
from det_mlflow._client import MLflowClient, RecordMissing, RequestRefused
from det_mlflow._run_directory import RunDeletedError, RunDirectory, RunReference
from det_mlflow._values import PARAMETER_LENGTH, TAG_LENGTH, NameTable, flatten_values, format_number, format_parameter

_log = logging.getLogger("det.mlflow")

CAPACITY = 100_000
"""Maximum number of metric values that wait for the server. Beyond it, the oldest ones are dropped and counted."""
_METRICS = 1000
_ENTRIES = 100
"""Maximum number of parameters or of tags in a request."""

Notify = Callable[[str], None]
"""Function that logs a text, and ignores the texts that it has logged before."""


class RunRecorder:
    """Recorder of one run, which collects data and sends it in batches.

    Everything that was collected may be sent again, because no request has another effect if it is repeated.

    Args:
        client: client of the server.
        runs: the runs of the MLflow experiment.
        key: key of the run.
        label: what the run stands for, such as ``trial 3``.
        name: name of the run if it is created.
        notify: function that logs notices.
        create: whether this process creates the run if it does not exist. Otherwise the data is discarded.
    """

    def __init__(
        self,
        client: MLflowClient,
        runs: RunDirectory,
        *,
        key: str,
        label: str,
        name: str,
        notify: Notify,
        create: bool,
    ) -> None:
        self.key = key
        self.label = label
        self.name = name
        self.create = create
        self.lost = 0
        self._client = client
        self._runs = runs
        self._notify = notify
        self._run: RunReference | None = None
        self._is_deleted = False
        self._metric_names = NameTable(notify)
        self._parameter_names = NameTable(notify)
        self._metrics: deque[dict[str, Any]] = deque()
        self._parameters: dict[str, str] = {}
        self._tags: dict[str, str] = {}
        self._removed_tags: dict[str, None] = {}
        self._files: dict[str, bytes] = {}
        self._copies: dict[str, FetchFiles] = {}
        self._update: dict[str, Any] = {}
        self._parts: Sequence[deque[Any] | dict[str, Any]] = (
            self._metrics,
            self._parameters,
            self._tags,
            self._removed_tags,
            self._files,
            self._copies,
            self._update,
        )

    @property
    def waiting(self) -> int:
        """Number of items that are not sent yet."""
        return sum(map(len, self._parts))

    def add_metrics(self, prefix: str, values: Mapping[str, Any], step: int, time: float) -> None:
        """Collect the numeric ones of reported metrics.

        Args:
            prefix: text before each name.
            values: names mapped to values, which may be nested.
            step: number of batches trained.
            time: seconds since the epoch.
        """
        for original, value in flatten_values(values):
            number, name = format_number(value), self._metric_names.find(prefix + original)
            if number is None:
                self._notify(f"metric {prefix}{original} is not numeric and not recorded in MLflow")
            elif name is not None:
                if len(self._metrics) == CAPACITY:
                    self._metrics.popleft()
                    self.lost += 1
                self._metrics.append({"key": name, "value": number, "step": step, "timestamp": int(time * 1000)})

    def add_parameters(self, values: Mapping[str, Any]) -> None:
        """Collect hyperparameters. Nested names are joined by dots.

        Args:
            values: names mapped to values.
        """
        for original, value in flatten_values(values):
            if (name := self._parameter_names.find(original)) is not None:
                self._parameters[name] = self._cut(
                    f"hyperparameter {original}", format_parameter(value), PARAMETER_LENGTH
                )

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Collect tags.

        Args:
            tags: names mapped to values.
        """
        for name, value in tags.items():
            self._tags[name] = self._cut(f"tag {name}", value, TAG_LENGTH)
            self._removed_tags.pop(name, None)

    def remove_tag(self, name: str) -> None:
        """Remove a tag, if the run has it.

        Args:
            name: name of the tag.
        """
        self._tags.pop(name, None)
        self._removed_tags[name] = None

    def set_status(self, status: str, end_time: float | None = None) -> None:
        """Set the status of the run, and its end.

        Args:
            status: MLflow's name of the status.
            end_time: seconds since the epoch, or None if the run has not ended.
        """
        self._update.clear()
        self._update["status"] = status
        if end_time is not None:
            self._update["end_time"] = int(end_time * 1000)

    def add_file(self, path: str, content: bytes) -> None:
        """Collect an artifact.

        Args:
            path: path within the run's artifacts.
            content: the content.
        """
        self._files[path] = content

    def add_checkpoint(self, storage_id: str, fetch_files: FetchFiles) -> None:
        """Collect the files of a checkpoint as artifacts, under ``checkpoints/ID``.

        Args:
            storage_id: id of the checkpoint.
            fetch_files: function that copies the files from storage.
        """
        self._copies[storage_id] = fetch_files

    def find(self) -> RunReference | None:
        """Return the run, which is created if this process may do so.

        Raises:
            RunDeletedError: a user has deleted the run.
            MLflowError: the server cannot be used.
        """
        if self._run is None:
            self._run = self._runs.ensure_run(self.key, self.name) if self.create else self._runs.find_run(self.key)
            if self._run:
                _log.info("%s is recorded in MLflow: %s", self.label, self._address(self._run))
        return self._run

    def send(self) -> None:
        """Send everything that is waiting.

        Raises:
            MLflowError: the server cannot be used. What was not sent is kept.
        """
        if not self.waiting:
            return
        try:
            run = None if self._is_deleted else self.find()
            if run is not None:
                self._send_all(run)
        except RunDeletedError as error:
            self._is_deleted = True
            self._notify(
                f"{self.label} is no longer recorded, because its run was deleted in MLflow; to go on, restore it "
                f"(mlflow runs restore --run-id {error}) before the trial starts again"
            )
        self.lost += self.waiting if self._is_deleted else 0
        for part in self._parts:
            part.clear()

    def _send_all(self, run: RunReference) -> None:
        self._send_entries(run, "tags", self._tags)
        self._send_entries(run, "params", self._parameters)
        while self._metrics:
            chunk = list(itertools.islice(self._metrics, _METRICS))
            self._log_batch(run, "metrics", chunk)
            for _ in chunk:
                self._metrics.popleft()
        while self._removed_tags:
            name = next(iter(self._removed_tags))
            try:
                self._client.post("runs/delete-tag", {"run_id": run.run_id, "key": name})
            except RequestRefused:  # there is no such tag
                self._check_active(run)
            del self._removed_tags[name]
        if self._update:
            try:
                self._client.post("runs/update", {"run_id": run.run_id, **self._update})
            except RequestRefused:
                self._check_active(run)
                raise
            self._update.clear()
        self._send_files(run)

    def _send_entries(self, run: RunReference, kind: str, entries: dict[str, str]) -> None:
        while entries:
            chunk = [{"key": key, "value": value} for key, value in itertools.islice(entries.items(), _ENTRIES)]
            self._log_batch(run, kind, chunk)
            for entry in chunk:
                del entries[entry["key"]]

    def _log_batch(self, run: RunReference, kind: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Send items of one kind. If the server refuses them, divide them, and drop those that it refuses alone."""
        try:
            self._client.post("runs/log-batch", {"run_id": run.run_id, kind: items})
        except RequestRefused as error:
            self._check_active(run)
            if len(items) == 1:
                self._notify(f"MLflow refuses an entry in {kind} of {self.label}, {items[0]['key']!r}: {error}")
                self.lost += 1
                return
            half = len(items) // 2
            self._log_batch(run, kind, items[:half])
            self._log_batch(run, kind, items[half:])

    def _check_active(self, run: RunReference) -> None:
        try:
            info = self._client.get("runs/get", run_id=run.run_id)["run"]["info"]
        except RecordMissing as error:
            raise RunDeletedError(run.run_id) from error
        if info["lifecycle_stage"] != "active":
            raise RunDeletedError(run.run_id)

    def _send_files(self, run: RunReference) -> None:
        if not self._files and not self._copies:
            return
        root = urlsplit(run.artifact_uri)
        if root.scheme != "mlflow-artifacts" or root.netloc:
            self._notify(
                f"config and files of {self.label} are not copied to MLflow, because the server does not store "
                f"artifacts itself (they are at {run.artifact_uri}); start it with --serve-artifacts"
            )
            self.lost += len(self._files) + len(self._copies)
            self._files.clear()
            self._copies.clear()
        base = root.path.strip("/")
        while self._files:
            path, content = next(iter(self._files.items()))
            self._client.upload(f"{base}/{path}", content)
            del self._files[path]
        while self._copies:
            storage_id, fetch_files = next(iter(self._copies.items()))
            self._copy(f"{base}/checkpoints/{storage_id}", storage_id, fetch_files)
            del self._copies[storage_id]

    def _copy(self, target: str, storage_id: str, fetch_files: FetchFiles) -> None:
        with scratch_directory("mlflow") as directory:
            try:
                fetch_files(storage_id, directory)
            except StorageError as error:
                self._notify(f"checkpoint {storage_id} of {self.label} is not copied to MLflow: {error}")
                self.lost += 1
                return
            for path in sorted(directory.rglob("*")):
                if path.is_file():
                    self._client.upload(f"{target}/{path.relative_to(directory).as_posix()}", Path(path))

    def _cut(self, label: str, value: str, length: int) -> str:
        if len(value) > length:
            self._notify(f"{label} of {self.label} is cut to the {length} characters that MLflow accepts")
        return value[:length].replace("\0", "\ufffd")  # PostgreSQL refuses it

    def _address(self, run: RunReference) -> str:
        return f"{self._client.address}/#/experiments/{run.experiment_id}/runs/{run.run_id}"
