"""Reports of a training loop to the tracking store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from det_core import events
from det_core.core._metric_conversion import MetricConverter, to_steps
from det_core.core._report_writer import ReportWriter
from det_core.core._tensorboard import TensorboardDirectory, TensorboardMode
from det_core.core.event_stream import EventStream
from det_core.interfaces.records import MetricsReport, Run
from det_core.interfaces.tracking import TrackingStore

if TYPE_CHECKING:
    from det_core.core._script_output import ScriptOutput

TRAINING = "training"
VALIDATION = "validation"


class EarlyExitReason(str, Enum):
    """Reason for a trial to stop permanently before its work is done."""

    INVALID_HP = "EXITED_REASON_INVALID_HP"
    """The hyperparameters are invalid."""
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"
    """The code of the trial decided to stop."""


class TrainContext:
    """Interface to report metrics, progress and status.

    Calls return at once, and a background thread writes the reports. Any worker may report, but usually only the
    chief does. An error in the thread is raised by the next call, at the latest when the core context exits. A forked
    child does not have the thread, so reports raise RuntimeError there.
    """

    def __init__(
        self,
        store: TrackingStore,
        run: Run,
        experiment_id: int,
        searcher_metric: str,
        *,
        smaller_is_better: bool,
        tensorboard: TensorboardDirectory,
        stream: EventStream,
        output: ScriptOutput | None = None,
    ) -> None:
        self._store = store
        self._run = run
        self._experiment_id = experiment_id
        self._searcher_metric = searcher_metric
        self._smaller_is_better = smaller_is_better
        self._tensorboard = tensorboard
        self._stream = stream
        self._output = output
        self._batches_trained: int | None = None
        """Number of batches trained, for descriptions of failures. It is that of the latest report, unless det's own
        training loop keeps it up to date."""
        self._values = MetricConverter()
        self._writer = ReportWriter(store.report_metrics, self._written)

    def set_status(self, status: str) -> None:
        """Report the present activity of the trial.

        Args:
            status: a few words, such as ``"loading data"``. The latest status replaces earlier ones.
        """
        self._submit_latest("status", self._store.set_runner_state, status, lambda output: output.set_status(status))

    def report_training_metrics(
        self,
        steps_completed: int,
        metrics: Mapping[str, Any],
        batch_metrics: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Report training metrics, and optionally the metrics of each batch since the last report.

        The values are copied and converted before this method returns. NumPy and torch scalars become numbers, arrays
        and tensors become lists, an Enum becomes its name, and a date becomes ISO 8601 text. NaN and infinities are
        kept. Bytes are omitted with a warning. If the metrics have more than 150,000 numbers and characters, or those
        of all batches more than a million, the largest ones are omitted with a warning, and so are those after the
        first 20,000.

        Args:
            steps_completed: number of batches trained since the start of the trial, >= 0.
            metrics: values by name. If a name is reported again for the same step, its value must be the same.
            batch_metrics: one mapping per batch, oldest first.

        Raises:
            TypeError: a value is not JSON-compatible, or ``steps_completed`` is not an integer. The message names
                the metric.
            ValueError: ``steps_completed`` is negative or too large.
        """
        self._report(TRAINING, steps_completed, metrics, batch_metrics)

    def report_validation_metrics(self, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Report validation metrics. Values are converted as in `report_training_metrics`, but None is not allowed.

        Args:
            steps_completed: number of batches trained since the start of the trial, >= 0.
            metrics: values by name. If a name is reported again for the same step, its value must be the same.

        Raises:
            RuntimeError: a value is None. The message names the metric.
            TypeError, ValueError: as in `report_training_metrics`.
        """
        self._report(VALIDATION, steps_completed, metrics)

    def report_metrics(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Report metrics of any group. Values are converted as in `report_training_metrics`.

        Args:
            group: ``training``, ``validation`` or a name of your own without ``.``.
            steps_completed: number of batches trained since the start of the trial, >= 0.
            metrics: values by name. If a name is reported again for the same step, its value must be the same.

        Raises:
            RuntimeError: a value of the group ``validation`` is None.
            TypeError: as in `report_training_metrics`.
            ValueError: ``group`` is empty or contains ``.``, or as in `report_training_metrics`.
        """
        if not group or "." in group:
            raise ValueError(f"metrics group {group!r} must not be empty or contain '.'; for example 'throughput'")
        self._report(group, steps_completed, metrics)

    def get_tensorboard_path(self) -> Path:
        """Return a private local directory for TensorBoard files. Each worker has its own.

        In TensorboardMode.AUTO, the files in the chief's directory are stored every ten seconds and when the core
        context exits. The directory is then removed, unless it contains files that were not stored.

        Raises:
            RuntimeError: this is a forked child, and its parent has not called this method before.
        """
        return self._tensorboard.path()

    def upload_tensorboard_files(
        self,
        selector: Callable[[Path], bool] = lambda _: True,
        mangler: Callable[[Path, int], PurePath] = lambda path, __: path,
    ) -> None:
        """Store the TensorBoard files that changed since the last call, beside the checkpoints.

        Args:
            selector: takes a file's path and returns whether to store it.
            mangler: takes the path relative to `get_tensorboard_path` and this worker's rank, and returns the
                relative path to store the file under.

        Raises:
            RuntimeError: the mode is AUTO, in which files are stored automatically.
            ValueError: the mangler's path is not relative, or contains ``..``.
            StorageError, OSError: a file could not be stored. All other files are stored first.
        """
        if self._tensorboard.mode is TensorboardMode.AUTO:
            raise RuntimeError(
                "upload_tensorboard_files() is for TensorboardMode.MANUAL; this context stores files automatically. "
                "To store them yourself: core.init(tensorboard_mode=core.TensorboardMode.MANUAL)"
            )
        self._tensorboard.upload(selector, mangler)

    def report_progress(self, progress: float) -> None:
        """Report the share of the work that is done.

        Args:
            progress: the share, 0 to 1.

        Raises:
            ValueError: ``progress`` is out of range.
        """
        if not 0 <= progress <= 1:
            raise ValueError(f"progress is {progress}; expected 0 to 1")
        self._submit_latest(
            "progress", self._store.set_trial_progress, progress, lambda output: output.set_share(progress)
        )

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of this trial, such as the source of its data.

        The metadata is written before this method returns.

        Args:
            metadata: values by name. They are converted as in `report_training_metrics`.

        Raises:
            TypeError: a value is not JSON-compatible.
            ValueError: there are more than a million numbers and characters.
        """
        self._store.set_trial_metadata(self._run.trial_id, self._run.run_id, self._values.copy_all(metadata))

    def get_metadata(self) -> dict[str, Any]:
        """Return the metadata from the last `set_metadata` of any run of this trial. Empty if there was none."""
        return dict(self._store.trial(self._run.trial_id).metadata)

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        """Record that the trial stops permanently. The record is written before this method returns.

        Args:
            reason: why the trial stops.

        Raises:
            ValueError: ``reason`` is not an EarlyExitReason.
        """
        self._store.report_early_exit(self._run.trial_id, self._run.run_id, EarlyExitReason(reason).value)

    def get_experiment_best_validation(self) -> float | None:
        """Return the best searcher metric of all trials so far, including reports that are still in the queue.

        None if no trial has a validation.
        """
        self.flush()
        best = self._store.best_validation(
            self._experiment_id, self._searcher_metric, smaller_is_better=self._smaller_is_better
        )
        return None if best is None else best[0]

    def flush(self) -> None:
        """Wait until everything reported so far is in the tracking store.

        Raises:
            RuntimeError: the core context is not entered, or this is a forked child.
            TrackingError: a report could not be written, or not in time.
        """
        self._writer.flush()

    def _report(
        self,
        group: str,
        steps_completed: int,
        metrics: Mapping[str, Any],
        batch_metrics: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        copied, batches = self._values.copy(metrics, batch_metrics)
        if group == VALIDATION and None in copied.values():
            name = next(name for name, value in copied.items() if value is None)
            raise RuntimeError(f"validation metric {name!r} is None; return a number from your evaluation")
        self._batches_trained = to_steps(steps_completed)
        self._writer.submit(
            MetricsReport(
                trial_id=self._run.trial_id,
                run_id=self._run.run_id,
                group=group,
                steps_completed=self._batches_trained,
                metrics=copied,
                batch_metrics=batches,
                time=datetime.now(timezone.utc),
            )
        )

    def _set_total(self, batches: int) -> None:
        """Report the number of batches that the trial trains in total, as soon as it is known."""
        self._submit_latest("total", self._store.set_trial_total, batches, lambda output: output.set_total(batches))

    def _submit_latest(
        self, key: str, write: Callable[[int, int, Any], None], value: Any, show: Callable[[ScriptOutput], None]
    ) -> None:
        """Record a value of this run in the background, and show it.

        Args:
            key: identifies the value. Only the latest one counts.
            write: method of the tracking store that records the value.
            value: the value.
            show: function that shows the value.
        """

        def write_and_show() -> None:
            write(self._run.trial_id, self._run.run_id, value)
            if self._output:
                show(self._output)

        self._writer.submit_latest(key, write_and_show)

    def _written(self, reports: Sequence[MetricsReport]) -> None:
        if self._output:
            self._output.add_reports(reports)
        self._tensorboard.write(reports)
        for report in reports:
            self._stream.emit(
                events.MetricsReported,
                group=report.group,
                steps_completed=report.steps_completed,
                metrics=report.metrics,
                batch_metrics=report.batch_metrics,
                time=report.time,
            )

    def _start(self) -> None:
        self._writer.open()

    def _close(self) -> None:
        try:
            self._writer.close()
        finally:
            self._tensorboard.close()
