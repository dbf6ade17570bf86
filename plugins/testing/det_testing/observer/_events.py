"""Events of a small experiment, with contents that can be recognized at the destination of an observer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from det_core import events
from det_core.core.event_stream import EventStream
from det_core.interfaces.records import LogLine, State

CHECKPOINT = "0b8e1c9a-6d4f-4a3e-9a51-3f0d2c7e5b64"
UNLOCATED_CHECKPOINT = "6f1d3c52-94ab-4c07-8e2f-b1a05d7c9e38"
"""Checkpoint without a location, so that its id is in one event and only once."""
HPARAMS: Mapping[str, Any] = {"lr": 0.1, "optimizer": {"name": "sgd", "nesterov": True}, "layers": [32, 64]}
_TRIAL = {"trial_id": 1, "hparams": HPARAMS}

CONTENTS: Mapping[str, str] = {
    "worker_finished": "ValueError: the error of a worker",
    "trial_finished": "the error of a trial",
    "experiment_finished": "the error of an experiment",
    "logs_recorded": "a line of the log",
    "metrics_reported": "8100001.5",
    "checkpoint_saved": CHECKPOINT,
    "artifacts_stored": "plots/loss.png",
    "model_version_registered": "the-digits-model",
}
"""Text that an event contains, by the name of the event."""

COUNTED: Mapping[str, str] = {**CONTENTS, "checkpoint_saved": UNLOCATED_CHECKPOINT}
"""Text that the events contain only once, by the name of the event."""


def report_metrics(stream: EventStream, value: float, step: int = 1, *, group: str = "training", **more: Any) -> None:
    """Send a report of metrics with this value.

    Args:
        stream: receivers of the event.
        value: value of the metric ``loss``.
        step: number of batches trained.
        group: group of the metrics.
        **more: further metrics.
    """
    stream.emit(
        events.MetricsReported,
        group=group,
        steps_completed=step,
        metrics={"loss": value, **more},
        time=datetime.now(timezone.utc),
    )


def send_runner_start(stream: EventStream, run_id: int = 1) -> None:
    """Send what a runner sends until it has started a run of its trial."""
    if run_id == 1:
        stream.emit(events.ExperimentStarted, resumed=False)
    stream.emit(events.TrialStarted, **_TRIAL, run_id=run_id)
    line = LogLine(
        trial_id=1,
        run_id=run_id,
        rank=0,
        stdtype="stdout",
        log=CONTENTS["logs_recorded"] if run_id == 1 else f"line of run {run_id}",
        time=datetime.now(timezone.utc),
    )
    stream.emit(events.LogsRecorded, **_TRIAL, run_id=run_id, lines=[line])


def send_runner_end(stream: EventStream, run_id: int = 1) -> None:
    """Send what a runner sends after the last run of its trial, which has failed."""
    error = CONTENTS["trial_finished"]
    stream.emit(
        events.TrialFinished, **_TRIAL, run_id=run_id, state=State.ERROR, error=error, steps_completed=7, best=0.25
    )
    error = CONTENTS["experiment_finished"]
    stream.emit(events.ExperimentFinished, state=State.ERROR, error=error, best_trial_id=1, best=0.25)
    stream.emit(events.CheckpointDeleted, storage_id="another", experiment_id=1, trial_id=1)


def send_runner_events(stream: EventStream) -> None:
    """Send what a runner sends."""
    send_runner_start(stream)
    send_runner_end(stream)


def send_worker_events(stream: EventStream, value: float = float(CONTENTS["metrics_reported"])) -> None:
    """Send what a worker sends.

    Args:
        stream: receivers of the events.
        value: value of the reported metric.
    """
    stream.emit(events.WorkerStarted, steps_completed=0)
    report_metrics(stream, value)
    for storage_id, location in ((CHECKPOINT, f"s3://bucket/{CHECKPOINT}"), (UNLOCATED_CHECKPOINT, "")):
        stream.emit(
            events.CheckpointSaved,
            storage_id=storage_id,
            steps_completed=7,
            resources={"weights": 3, "metadata.json": 20},
            metadata={"steps_completed": 7},
            location=location,
        )
    stream.emit(
        events.ArtifactsStored,
        storage_id="artifacts",
        resources={CONTENTS["artifacts_stored"]: 3},
        location="s3://bucket/artifacts",
    )
    stream.emit(events.PreemptionRequested, reason="runner")
    stream.emit(events.WorkerFinished, error=CONTENTS["worker_finished"], preempted=False)


def send_script_events(stream: EventStream) -> None:
    """Send what a script without a runner sends."""
    stream.emit(events.ExperimentStarted, resumed=False)
    stream.emit(events.TrialStarted)
    send_worker_events(stream)
    send_runner_end(stream)


def send_client_events(stream: EventStream) -> None:
    """Send what a command sends."""
    stream.emit(
        events.ModelVersionRegistered,
        **_TRIAL,
        run_id=1,
        model=CONTENTS["model_version_registered"],
        version=1,
        storage_id=CHECKPOINT,
        location=f"s3://bucket/{CHECKPOINT}",
    )


def send_unusual_events(stream: EventStream) -> None:
    """Send reports with values that are allowed, but rare."""
    values: dict[str, Any] = {
        "nan": float("nan"),
        "inf": float("inf"),
        "text": "ünïcode\n",
        "list": [1, [2.0]],
        "none": None,
    }
    report_metrics(stream, 0.0, 0, **values)
    names: dict[str, Any] = {"": 1, "a/b c%": 2, "x" * 300: 3, "nested": {"a": {"b": 1}}}
    report_metrics(stream, -1e308, 2**63 - 1, **names)
    report_metrics(stream, True, 1)
    stream.emit(
        events.MetricsReported,
        group="a group of mine",
        steps_completed=2,
        metrics={},
        batch_metrics=[{"loss": 1.0}, {}],
        time=datetime.now(timezone.utc),
    )
    stream.emit(
        events.CheckpointSaved,
        storage_id=CHECKPOINT,
        steps_completed=None,
        resources={"empty/": 0, "ünï code": 1},
        metadata={},
        location="",
    )
    stream.emit(events.WorkerFinished, error="KeyError: '\x1b[31mlong\x00'" + "x" * 100_000, preempted=True)


PLACES: Mapping[str, Callable[[EventStream], None]] = {
    "runner": send_runner_events,
    "worker": send_worker_events,
    "script": send_script_events,
    "client": send_client_events,
}
"""Functions that send the events of each kind of process."""
