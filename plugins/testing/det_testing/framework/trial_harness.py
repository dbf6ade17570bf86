"""Environment in which the suite trains trials like a runner, but without one."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from det_core import core
from det_core.config import parse_config
from det_core.interfaces.framework import TrialAdapter
from det_core.interfaces.records import CheckpointRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.network import reserve_free_ports
from det_core.plugins import import_target
from det_core.storage import METADATA_FILE
from det_core.tracking import open_store
from det_core.trial import Trial
from det_testing.comparison import bitwise_form
from det_testing.framework._incidents import Incident, schedule_incidents
from det_testing.framework._recording_adapter import RecordingAdapter, record_adapters
from det_testing.runs import begin_run, worker_environment

BATCHES = 14
"""Number of batches that a trial trains by default."""
LENGTH = {"batches": BATCHES}
"""Default length of trials."""
REPORT_PERIOD = 4
"""Number of batches between two reports."""
SEED = 5
"""Seed of all trials."""
_LIMIT = 120.0
"""Time limit of a process in seconds."""


@dataclass(frozen=True)
class TrainedTrial:
    """Result of a trial. Equal outcomes are equal bit by bit."""

    rows: list[Any]
    """Metrics of each batch."""
    reports: list[Any]
    """All other reports in the tracking store, by step."""
    weights: Any
    """Weights in the last checkpoint."""

    @property
    def records(self) -> list[Any]:
        """Data of each batch, which its metrics contain under ``records``."""
        return [row["records"] for row in self.rows]

    def reports_of(self, group: str) -> list[Any]:
        """Return the reports of a group."""
        return [report for report in self.reports if report[0] == group]


@dataclass(frozen=True)
class TrainedSlot:
    """Result of one of several slots of a run."""

    records: list[Any]
    """Data of each batch, which its metrics contain under ``records``."""
    validations: list[Any]
    """Metrics of each validation."""
    weights: Any
    """Weights after the last validation, or None if there was none."""


class TrialHarness:
    """Environment that trains trials of one class, in this process or in others, and reads their results.

    Args:
        directory: directory for all files.
        target: ``run_trial`` of the framework as ``"module:attribute"``.
        trial_class: class of the trials.
        config: config keys that all trials have.
        weights: reads the weights from a checkpoint's directory.
    """

    def __init__(
        self,
        directory: Path,
        target: str,
        trial_class: type[Trial],
        config: Mapping[str, Any],
        weights: Callable[[Path], Any],
    ) -> None:
        self._directory, self._target, self._trial_class = directory, target, trial_class
        self._config = {**config, "checkpoint_storage": {"type": "directory", "container_path": str(directory / "c")}}
        self._weights = weights
        self._recorders: list[RecordingAdapter] = []
        self.counts: Counter[str] = Counter()
        """Number of times that the latest run in this process reached each point."""
        with self._environment():
            self.store: TrackingStore = open_store()
            """Tracking store of the trials."""

    @property
    def recorder(self) -> RecordingAdapter:
        """Witness of the latest run in this process."""
        assert self._recorders, f"{self._target} must pass its adapter to det_core.trial.TrialLoop"
        return self._recorders[-1]

    def prepare(self, *, seed: int = SEED, length: Mapping[str, int] = LENGTH, **config: Any) -> int:
        """Record a new trial and return its id.

        Args:
            seed: seed of the trial.
            length: length of the trial.
            config: further config keys.
        """
        searcher = {**self._config["searcher"], "max_length": dict(length)}
        parsed = parse_config({**self._config, "searcher": searcher, **config}).dump()
        experiment = self.store.create_experiment(config=parsed)
        return self.store.create_trial(experiment.id, hparams=self._config["hyperparameters"], seed=seed).id

    def train(
        self,
        trial_id: int,
        *incidents: Incident,
        latest: str | None = None,
        recorder: Callable[[TrialAdapter], RecordingAdapter] = RecordingAdapter,
    ) -> None:
        """Run the trial from its latest checkpoint, or from ``latest`` if it has none.

        Args:
            trial_id: id of the trial.
            incidents: incidents of this run.
            latest: checkpoint of another trial.
            recorder: makes the recorder of the adapter.
        """
        begin_run(self.store, trial_id, self._directory, latest=latest)
        with self._environment(), record_adapters(recorder) as self._recorders, schedule_incidents(incidents) as met:
            self.counts = met.counts
            with core.init() as context:
                import_target(self._target)(self._trial_class, context)

    def train_elsewhere(self, trial_id: int, *incidents: Incident) -> tuple[int, str]:
        """Run the trial in another process, and return its exit code and output."""
        begin_run(self.store, trial_id, self._directory)
        with self._environment():
            return self._run_process({"incidents": incidents})

    def train_on_two_slots(self, trial_id: int, *incidents: Incident) -> list[TrainedSlot]:
        """Run the trial in two processes from its latest checkpoint, and return the result of each."""
        begin_run(self.store, trial_id, self._directory)
        checkpoints = [self._directory / str(uuid.uuid4()) for _ in range(2)]
        host = {"size": 2, "local_size": 2, "cross_rank": 0, "cross_size": 1, "timeout": _LIMIT / 2}
        requests = []
        with self._environment(), reserve_free_ports(1) as (port,), ThreadPoolExecutor(2) as threads:
            for rank, checkpoint in enumerate(checkpoints):
                checkpoint.mkdir()
                distributed = {**host, "rank": rank, "local_rank": rank, "pub_port": port}
                slot = {"distributed": distributed, "checkpoint": str(checkpoint), "metrics": f"{checkpoint}.json"}
                requests.append({"slot": slot, "incidents": incidents})
            for code, said in threads.map(self._run_process, requests):
                assert code == 0, said
        return [self._slot(checkpoint) for checkpoint in checkpoints]

    def _slot(self, checkpoint: Path) -> TrainedSlot:
        records, validations = json.loads(Path(f"{checkpoint}.json").read_text(encoding="utf-8"))
        weights = bitwise_form(self._weights(checkpoint)) if validations else None
        return TrainedSlot(bitwise_form(records), bitwise_form(validations), weights)

    def _run_process(self, request: Mapping[str, Any]) -> tuple[int, str]:
        """Run the trial in a process in the present environment, and return its exit code and output."""
        trial = {
            "file": inspect.getfile(self._trial_class),
            "module": self._trial_class.__module__,
            "trial_class": self._trial_class.__qualname__,
            "target": self._target,
        }
        ran = subprocess.run(
            [sys.executable, "-m", "det_testing.framework._trial_process"],
            input=json.dumps({**trial, **request}),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            encoding="utf-8",
            timeout=_LIMIT,
        )
        return ran.returncode, ran.stdout + ran.stderr

    def checkpoints(self, trial_id: int) -> list[CheckpointRecord]:
        """Return the completed checkpoints of a trial, oldest first."""
        return self.store.checkpoints(trial_id=trial_id)

    def directory_of(self, checkpoint: CheckpointRecord) -> Path:
        """Return the directory of a checkpoint."""
        return Path(checkpoint.storage["container_path"], checkpoint.uuid)

    def damage(self, checkpoint: CheckpointRecord) -> None:
        """Flip a bit in each file of a checkpoint."""
        for name in checkpoint.resources:
            file = self.directory_of(checkpoint) / name
            if file.is_file() and name != METADATA_FILE:
                content = bytearray(file.read_bytes() or b"?")
                content[len(content) // 2] ^= 1
                file.chmod(0o600)
                file.write_bytes(content)

    def weights(self, checkpoint: CheckpointRecord) -> Any:
        """Return the weights in a checkpoint, in a form that compares exactly."""
        return bitwise_form(self._weights(self.directory_of(checkpoint)))

    def weights_of(self, adapter: Any) -> Any:
        """Return the present weights of an adapter, in a form that compares exactly."""
        directory = self._directory / str(uuid.uuid4())
        directory.mkdir()
        adapter.snapshot()(directory)
        return bitwise_form(self._weights(directory))

    def outcome(self, trial_id: int) -> TrainedTrial:
        """Return the result of a trial."""
        metrics = list(self.store.metrics(trial_id))
        return TrainedTrial(
            rows=[bitwise_form(row) for report in metrics for row in report.batch_metrics or ()],
            reports=[(report.group, report.steps_completed, bitwise_form(report.metrics)) for report in metrics],
            weights=self.weights(self.checkpoints(trial_id)[-1]),
        )

    def _environment(self) -> AbstractContextManager[None]:
        return worker_environment({"DET_HOME": str(self._directory), "DET_INFO_DIR": str(self._directory)})
