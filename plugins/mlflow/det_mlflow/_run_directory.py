"""Search for MLflow runs by their tags, and their creation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from det_mlflow._client import MLflowClient, MLflowError, RecordMissing, RequestRefused

KEY_TAG = "det.key"
"""Tag that identifies a run by the tracking store and what the run stands for, such as ``5f0c.../trial/3``."""
STATE_TAG = "det.state"
"""Tag that is set after the creation of a run. A run without it may be the result of a request that was repeated."""


class RunDeletedError(MLflowError):
    """A user has deleted the run in MLflow."""


@dataclass(frozen=True)
class RunReference:
    """A run on the server."""

    run_id: str
    """MLflow's id of the run."""
    experiment_id: str
    """MLflow's id of the experiment."""
    artifact_uri: str
    """Root of the run's artifacts."""


class RunDirectory:
    """The runs of one MLflow experiment, which is created if necessary.

    A run is found by its key, so runner and workers need no common state. MLflow cannot create a run under a unique
    key. Therefore only one process at a time may create the run of a key: the runner for experiments, the chief worker
    for its trial, and the runner for a trial that has ended.

    Args:
        client: client of the server.
        experiment_name: name of the MLflow experiment.
    """

    def __init__(self, client: MLflowClient, experiment_name: str) -> None:
        self._client = client
        self._name = experiment_name
        self._experiment_id: str | None = None

    def find_run(self, key: str) -> RunReference | None:
        """Return the run of a key, or None if there is none.

        Args:
            key: value of the tag `KEY_TAG`.

        Raises:
            RunDeletedError: a user has deleted the run.
            MLflowError: the server cannot be used.
        """
        return next(iter(self._find_all(key)), None)

    def ensure_run(self, key: str, name: str) -> RunReference:
        """Return the run of a key. Create it if there is none, and delete the results of repeated requests.

        Args:
            key: value of the tag `KEY_TAG`.
            name: name of a new run.

        Raises:
            RunDeletedError: a user has deleted the run.
            MLflowError: the server cannot be used.
        """
        found = self._find_all(key)
        for surplus in found[1:]:
            self._client.post("runs/delete", {"run_id": surplus.run_id})
        if found:
            return found[0]
        body = {
            "experiment_id": self._find_experiment(),
            "run_name": name,
            "start_time": int(time.time() * 1000),
            "tags": [{"key": KEY_TAG, "value": key}],
        }
        return _reference(self._client.post("runs/create", body)["run"])

    def _find_all(self, key: str) -> Sequence[RunReference]:
        """Return the runs of a key, first the one that was used, or else the oldest one."""
        body = {
            "experiment_ids": [self._find_experiment()],
            "filter": f"tags.`{KEY_TAG}` = '{key}'",
            "run_view_type": "ALL",
            "max_results": 100,
        }
        runs = self._client.post("runs/search", body).get("runs", [])
        active = [run for run in runs if run["info"]["lifecycle_stage"] == "active"]
        if deleted := [run["info"]["run_id"] for run in runs if run not in active and _is_used(run)]:
            raise RunDeletedError(deleted[0])
        active.sort(key=lambda run: (not _is_used(run), int(run["info"]["start_time"]), run["info"]["run_id"]))
        return [_reference(run) for run in active]

    def _find_experiment(self) -> str:
        if self._experiment_id is None:
            try:
                self._experiment_id = self._existing_experiment()
            except RecordMissing:
                try:
                    self._experiment_id = self._client.post("experiments/create", {"name": self._name})["experiment_id"]
                except RequestRefused as error:
                    if error.code != "RESOURCE_ALREADY_EXISTS":
                        raise
                    self._experiment_id = self._existing_experiment()
        return self._experiment_id

    def _existing_experiment(self) -> str:
        experiment = self._client.get("experiments/get-by-name", experiment_name=self._name)["experiment"]
        if experiment["lifecycle_stage"] != "active":
            raise MLflowError(
                f"the MLflow experiment {self._name!r} at {self._client.address} is deleted; restore it (mlflow "
                f"experiments restore --experiment-id {experiment['experiment_id']}), or set "
                "observers.mlflow.experiment_name"
            )
        return str(experiment["experiment_id"])


def _is_used(run: Mapping[str, Any]) -> bool:
    return any(tag["key"] == STATE_TAG for tag in run["data"].get("tags", ()))


def _reference(run: Mapping[str, Any]) -> RunReference:
    info = run["info"]
    return RunReference(info["run_id"], info["experiment_id"], info.get("artifact_uri", ""))
