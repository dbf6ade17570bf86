"""Loop that drives every trial: train, report, validate, checkpoint, stop."""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from numbers import Real
from operator import methodcaller
from pathlib import Path
from typing import Any

from det_core.core import Context, EarlyExitReason
from det_core.core.rank_agreement import all_ranks_group
from det_core.errors import CheckpointCorrupt, DetError, InvalidTrial
from det_core.interfaces.framework import Metrics, TrialAdapter
from det_core.interfaces.records import TRAINING_STATE
from det_core.storage import read_object
from det_core.tracking.remote._codecs import load_record
from det_core.trial._rehearsal import rehearse_trial
from det_core.trial._training_plan import Schedule, TrainingPlan
from det_core.trial._trial_context import TrialContext
from det_core.trial.checkpoints import CheckpointSaver, CheckpointTimer
from det_core.trial.metric_averages import average_metrics, merge_rank_metrics, summarize_arrays
from det_core.version import __version__

STATE_FILE = "trial_state.json"
"""File within a checkpoint that holds the `Progress`."""
CODE = "code"
"""Directory within a checkpoint that holds the trial's code, if it was saved."""

_FEWEST_TIMED = 2
"""Number of checkpoints by the timer that a run keeps at least. The older one counts if the newest is damaged."""

_log = logging.getLogger("det.trial")


@dataclass
class Progress:
    """State of the loop that must survive a restart."""

    trial_id: int
    """Trial that the state belongs to."""
    batches_trained: int = 0
    """Number of batches trained since the start of the trial."""
    validated_at: int = -1
    """Number of batches trained at the latest validation, or -1 before the first."""
    unreported: list[dict[str, Any]] = field(default_factory=list)
    """Metrics of each batch since the last report."""
    trial_seed: int | None = None
    """Seed of everything random in the trial."""
    stop_requested: bool = False
    """Whether the trial requested to stop. It stops at the next report, which may be in a later run."""

    @classmethod
    def read(cls, path: Path) -> Progress | None:
        """Return the progress in a checkpoint, or None if det did not save it.

        Raises:
            CheckpointCorrupt: the file contains something else.
        """
        file = path / STATE_FILE
        if not file.exists():
            return None
        state = read_object(file)
        try:
            return load_record(cls, state, is_exact=True)
        except TypeError as error:
            expected = ", ".join(f"{one.name}: {one.type}" for one in fields(cls))
            raise CheckpointCorrupt(
                f"{file} is damaged: expected an object of {expected}; found {state!r:.200}"
            ) from error


class _StoppedInValidation(Exception):
    """The trial was asked to stop during a validation."""


class TrialLoop:
    """Training of one trial from its latest checkpoint to its end, or until it is asked to stop.

    With several workers, each worker has a loop, and all do the same between the same batches. Only the chief reports
    and saves. The metrics of a batch are averaged over the workers.

    Resuming is exact, because every boundary is a function of the number of batches, and a checkpoint between two
    reports contains the metrics that the next report will cover.

    Args:
        adapter: this worker's adapter of the framework.
        core: core context of the trial.
        context: context that the trial received.
        plan: training plan. By default the plan from the config.
        latest: storage id of the checkpoint to begin with. By default the one that the cluster info names. Under a
            runner, a checkpoint of another trial provides its weights only. A script continues from any checkpoint.
    """

    def __init__(
        self,
        adapter: TrialAdapter,
        core: Context,
        context: TrialContext,
        *,
        plan: TrainingPlan | None = None,
        latest: str | None = None,
    ) -> None:
        self._adapter = adapter
        self._core = core
        self._context = context
        self._plan = plan or TrainingPlan.of(core._settings.dumped, core.searcher.ordered() if core.info else None)
        self._latest = latest or core.latest_checkpoint
        self._progress = Progress(core.trial.trial_id, trial_seed=context.get_trial_seed())
        self._checkpointed_at = -1
        self._left_out: set[str] = set()
        """Names of metrics that reports leave out."""
        self._is_training = False
        self._is_alone = core.distributed.size == 1
        self._batch = 0
        """Number of batches trained, including those whose metrics the adapter has not returned yet."""
        # Listed at the start: later the directory has what training wrote, too.
        self._directory = Path.cwd()
        self._code = _list_code(self._directory) if self._plan.checkpoint_code else []
        self._ranks = all_ranks_group(core.distributed)
        self._saver = CheckpointSaver(core.checkpoint, self._saved, self._ranks)
        self._timer = CheckpointTimer(self._plan.longest_interval)
        self._is_timed = False
        """Whether the latest checkpoint was saved because of the timer."""
        self._timed: list[str] = []
        """Storage ids of the checkpoints that this run saved because of the timer, oldest first."""
        self._schedule = Schedule.of(self._plan, adapter)
        context.training_length = self._schedule.length
        self._warn_of_epoch_length(adapter.batches_per_epoch)

    def run(self) -> None:
        """Train to the end."""
        for batches in self.chunks():
            self.trained(self._adapter.train(batches, self.stop))

    def chunks(self) -> Generator[int, None, None]:
        """Yield the number of batches to train next. Everything else happens between two chunks.

        For frameworks that own their loop: train each chunk, call `stop` after each batch, then pass the metrics of the
        trained batches to `trained`.
        """
        try:
            self._agree()
            self._restore()
            self._adapter.started()
            self._note_batch(self._progress.batches_trained)
            if self._ranks.is_chief:
                self._core.train._set_total(self._schedule.length)
            try:
                yield from self._until_the_end()
            except _StoppedInValidation:
                self._checkpoint_once()
                self._core.preempt.acknowledge_preemption_signal()
            self._saver.wait()
        finally:
            self._close()

    def _close(self) -> None:
        """End what training has started, but not in a forked child that leaves the training of its parent."""
        if self._core._owner.is_here:
            with closing(self._adapter):
                self._saver.close()

    def _until_the_end(self) -> Iterator[int]:
        progress, schedule = self._progress, self._schedule
        if self._preempted():
            return
        if self._plan.rehearsal:
            self._rehearse()
        batch = progress.batches_trained
        if schedule.validates_at(batch) if batch else self._plan.initial_validation:
            self._validate_once()  # the earlier run may have left before it was done
        while progress.batches_trained < schedule.length:
            if self._stopped() or self._preempted():
                return
            if self._plan.longest_interval and self._ranks.by_chief(self._timer.is_due):
                self._checkpoint_once(timed=True)
            yield schedule.next_boundary(progress.batches_trained) - progress.batches_trained
            self._saver.poll()
            if schedule.reports_at(progress.batches_trained):
                self._at_boundary()
        self._validate_once()
        self._checkpoint_once()

    def _rehearse(self) -> None:
        """Rehearse in the first run of a trial, as long as no trial of the search has been validated."""
        if self._progress.batches_trained or self._core.trial.trial_run_id > 1:
            return
        if self._ranks.by_chief(self._core.train.get_experiment_best_validation) is not None:
            return
        stops = self._context.get_stop_requested()
        rehearse_trial(self._adapter, self._core.checkpoint, self._ranks, self._plan)
        self._context.set_stop_requested(stops)

    def trained(self, batch_metrics: Sequence[Metrics]) -> None:
        """Record the metrics of the batches just trained.

        Args:
            batch_metrics: metrics of each batch, oldest first.
        """
        self._note_training()
        self._progress.batches_trained += len(batch_metrics)
        self._note_batch(self._progress.batches_trained)
        self._progress.unreported += self._merge_ranks(batch_metrics)

    def _merge_ranks(self, batch_metrics: Sequence[Metrics]) -> Sequence[dict[str, Any]]:
        """Merge the metrics of all workers into one mapping per batch, the same on all workers."""
        own = list(map(dict, batch_metrics))
        if self._core.distributed.size == 1:
            return own
        of_ranks: list[list[dict[str, Any]]] = self._core.distributed.allgather(own)
        if not self._core._settings.dumped["optimizations"]["average_training_metrics"]:
            return of_ranks[0]
        return [merge_rank_metrics(rows) for rows in zip(*of_ranks, strict=True)]

    def _agree(self) -> None:
        """Check that all workers have the same schedule.

        Otherwise those with more data would wait for the others forever.
        """
        schedules = self._ranks.allgather(self._schedule)
        if any(schedule != schedules[0] for schedule in schedules):
            raise InvalidTrial(
                f"the workers would train and validate at different batches: {schedules}; give all of them data of one "
                "length, or the lengths in batches"
            )

    def stop(self) -> bool:
        """Return whether to stop training before the end of the chunk. To be called after each batch."""
        if not self._is_training:
            self._note_training()
        self._batch = self._core.train._batches_trained = self._batch + 1
        return self._is_alone and (self._core.preempt.should_preempt(auto_ack=False) or self._timer.is_due())

    def _note_batch(self, batch: int) -> None:
        self._batch = self._core.train._batches_trained = batch

    def _asked_to_stop(self) -> bool:
        # With several workers all must leave at the same batch, so there they ask at boundaries only.
        # The request is acknowledged once the trial stops early. A trial that is done by then has not stopped early.
        return self._is_alone and self._core.preempt.should_preempt(auto_ack=False)

    def _note_training(self) -> None:
        """Report after the first batch that training works, because the runner restarts other trials less often."""
        if not self._is_training and self._ranks.is_chief:
            self._core.train.set_status(TRAINING_STATE)
        self._is_training = True

    def _at_boundary(self) -> None:
        batch = self._progress.batches_trained
        self._report()
        if self._schedule.validates_at(batch):
            self._validate_once()
        if self._schedule.checkpoints_at(batch):
            self._checkpoint_once()
        if self._ranks.is_chief:
            self._core.train.report_progress(min(batch / self._schedule.length, 1.0))

    def _report(self) -> None:
        rows = self._progress.unreported
        metrics = {**average_metrics(rows), **self._adapter.reduced()}
        if self._ranks.is_chief:
            self._warn_of_left_out(rows, metrics)
            summaries = list(map(summarize_arrays, rows))
            self._core.train.report_training_metrics(self._progress.batches_trained, metrics, summaries)
        self._progress.unreported = []
        self._adapter.reported(metrics, rows)
        if self._plan.stop_on_nan:
            self._ranks.by_chief(lambda: self._require_finite_loss(rows))

    def _require_finite_loss(self, rows: Sequence[Metrics]) -> None:
        from det_core.core.non_finite_metrics import stays_non_finite  # few trials need it

        if stays_non_finite(list(map(summarize_arrays, rows))):
            batch = self._progress.batches_trained
            raise InvalidTrial(
                f"the loss of batches {batch - len(rows) + 1:,} to {batch:,} is NaN or infinite, and stop_on_nan is "
                "set; lower the learning rate or clip gradients, and start again or from an earlier checkpoint"
            )

    def _warn_of_left_out(self, rows: Sequence[Metrics], reported: Metrics) -> None:
        for name in sorted(set().union(*rows) - reported.keys() - self._left_out):
            value = next((row[name] for row in rows if row.get(name) is not None), None)
            if value is not None:
                self._left_out.add(name)
                _log.warning(
                    "the training metric %r is %r, which has no mean and is left out of reports; return numbers, "
                    "tensors or arrays of numbers, or use a metric reducer",
                    name,
                    value,
                )

    def _warn_of_epoch_length(self, batches: int | None) -> None:
        records = self._core._settings.dumped["records_per_epoch"]
        size = self._context.get_hparams().get("global_batch_size")
        # The data may end with an incomplete batch.
        if records and batches and isinstance(size, int) and size and abs(records // size - batches) > 1:
            _log.warning(
                "records_per_epoch is %d, which is %d batches, but the training data has %d batches; an epoch is one "
                "pass over the data",
                records,
                records // size,
                batches,
            )

    def _stopped(self) -> bool:
        """End the trial for good if it requested to stop and all trained batches are reported."""
        if self._progress.unreported or not self._stop_requested():
            return False
        _log.info("the trial asked to stop after %d batches", self._progress.batches_trained)
        self._checkpoint_once()
        self._saver.wait()
        if self._ranks.is_chief:
            self._core.train.report_early_exit(EarlyExitReason.USER_REQUESTED_STOP)
        return True

    def _preempted(self) -> bool:
        """Save a checkpoint to continue from if this process was asked to make room, and return whether it was."""
        if not self._core.preempt.should_preempt():
            return False
        self._checkpoint_once()
        return True

    def _stop_requested(self) -> bool:
        return any(self._ranks.allgather(self._context.get_stop_requested()))

    def _validate_once(self) -> None:
        if self._progress.validated_at != self._progress.batches_trained:
            self._validate()

    def _validate(self) -> None:
        batch = self._progress.batches_trained
        metrics = self._adapter.validate(self._asked_to_stop)
        if metrics is None:
            raise _StoppedInValidation
        improved = self._ranks.by_chief(lambda: self._is_best(metrics))
        if self._ranks.is_chief:
            self._core.train.report_validation_metrics(batch, metrics)
        self._progress.validated_at = batch
        policy = self._plan.checkpoint_policy
        if batch and (policy == "all" or (policy == "best" and improved)):
            self._checkpoint_once()

    def _is_best(self, metrics: Metrics) -> bool:
        name = self._plan.metric
        if name is None:
            return True
        value = metrics.get(name)
        if isinstance(value, bool) or not isinstance(value, Real):
            from det_core.metric_directions import suggest_metric

            raise InvalidTrial(
                f"searcher.metric is {name!r}, but the validation metrics are {dict(metrics)!r}; expected a "
                "number under that name: return it from the trial's evaluation, or change the config"
                f"{suggest_metric(name, metrics, smaller_is_better=self._plan.smaller_is_better)}"
            )
        if not math.isfinite(value):
            number = "NaN" if math.isnan(value) else value
            if self._plan.stop_on_nan:
                raise InvalidTrial(f"the validation metric {name} is {number}, and stop_on_nan is set")
            _log.warning("the validation metric %s is %s; it counts as the worst", name, number)
            return False
        best = self._core.train.get_experiment_best_validation()
        if best is None:
            return True
        return float(value) < best if self._plan.smaller_is_better else float(value) > best

    def _checkpoint_once(self, *, timed: bool = False) -> None:
        # Otherwise nothing was trained that a new start would not do again.
        if self._progress.batches_trained not in (0, self._checkpointed_at):
            with self._timer.saving():
                self._checkpoint(timed=timed)

    def _checkpoint(self, *, timed: bool) -> None:
        batch = self._progress.batches_trained
        self._saver.wait()  # the snapshot reuses what the one before was written from
        self._is_timed = timed
        # At the end of a step the trial stops at once, and a run that continues from this checkpoint should train on.
        self._progress.stop_requested = bool(self._progress.unreported) and self._stop_requested()
        metadata = {"steps_completed": batch, "det_version": __version__, **self._adapter.metadata()}
        write = self._adapter.snapshot()
        if self._core.distributed.rank == 0:
            state = json.dumps(asdict(self._progress), default=methodcaller("tolist"))
            write = partial(_write, write, state, self._directory, self._code)
        if self._adapter.sharded:
            self._saver.save_shards(metadata, write)
        else:
            self._saver.save(metadata, write, behind=self._adapter.writes_behind)
        self._checkpointed_at = batch

    def _saved(self, storage_id: str) -> None:
        self._adapter.saved(storage_id)
        if self._is_timed:
            self._timed.append(storage_id)
            storage = self._core._settings.dumped["checkpoint_storage"]
            if len(self._timed) > max(storage["save_trial_latest"], _FEWEST_TIMED):
                self._remove(self._timed.pop(0))

    def _remove(self, storage_id: str) -> None:
        """Remove a checkpoint unless something else needs it. An error must not cost the training."""
        if self._ranks.is_chief:
            from det_core.core.checkpoint_retention import find_needed  # few trials need it

            try:
                if storage_id not in find_needed(self._core._store, self._core.trial.experiment_id):
                    self._core.checkpoint.delete(storage_id)
            except DetError as error:
                _log.warning("checkpoint %s is no longer needed, but was not removed: %s", storage_id, error)

    def _restore(self) -> None:
        if self._latest is None:
            return
        checkpoint = self._core.checkpoint
        with checkpoint.restore_path(self._latest) as path, checkpoint._source(self._latest).recording_damage():
            self._take_over(path, Progress.read(path))
            self._adapter.load(path, batches_trained=self._progress.batches_trained)
        _log.info("continuing from checkpoint %s after %d batches", self._latest, self._progress.batches_trained)

    def _take_over(self, path: Path, saved: Progress | None) -> None:
        """Set the progress to that of a checkpoint, if this is a continuation."""
        progress = self._progress
        if saved is None and self._core.info is None:
            progress.batches_trained = self._adapter.batches_trained(path) or 0
        elif saved and (self._core.info is None or saved.trial_id == progress.trial_id):
            vars(progress).update(vars(saved), trial_id=progress.trial_id)
            if self._core.info:  # a script may train a stopped trial further
                self._checkpointed_at = saved.batches_trained
                if saved.stop_requested:
                    self._context.set_stop_requested(True)


def _list_code(directory: Path) -> list[str]:
    from det_core.core.context_dir import context_files  # few trials need it

    return list(context_files(directory))


def _write(write: Callable[[Path], None], state: str, source: Path, code: Sequence[str], path: Path) -> None:
    write(path)
    (path / STATE_FILE).write_text(state, encoding="utf-8")
    for name in code:
        copy = path / CODE / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, copy)
