"""`init` and the context that it returns."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

from det_core import events
from det_core.core import failure_notes
from det_core.core._checkpoints._context import CheckpointContext
from det_core.core._cluster_info import ClusterInfo, TrialInfo, get_cluster_info
from det_core.core._distributed import DistributedContext
from det_core.core._experiment_settings import ExperimentSettings
from det_core.core._machine_report import MachineReport
from det_core.core._preempt import PreemptContext, PreemptMode
from det_core.core._searcher_operations import SearcherContext
from det_core.core._task import Task, join_run, start_script
from det_core.core._tensorboard import TensorboardDirectory, TensorboardMode
from det_core.core._train import EarlyExitReason, TrainContext
from det_core.core.event_stream import EventStream, describe_error, make_fetch_files
from det_core.errors import InvalidHP
from det_core.interfaces.records import MetricsReport, Run, State
from det_core.interfaces.storage import RETENTION_KEYS
from det_core.interfaces.tracking import TrackingStore
from det_core.owner_process import OwnerProcess
from det_core.tracking.secret_files import extract_secrets

if TYPE_CHECKING:
    from typing_extensions import Self

    from det_core.config import ExperimentConfig
    from det_core.core._experimental import ExperimentalCoreContext
    from det_core.core._profiler import ProfilerContext
    from det_core.core._script_output import ScriptOutput
    from det_core.tracking._lease import Lease

_log = logging.getLogger("det.core")

_QUIET = "DET_QUIET"
"""Environment variable that, if it is not empty, turns off the output of all scripts."""
_ALERT_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}


@dataclass(frozen=True, kw_only=True)
class Context:
    """Entry point to the parts of the Core API. `init` creates it, and a ``with`` block enters it.

    The end of the block writes everything that was reported. If `InvalidHP` leaves the block, it is recorded, and the
    process exits with 0. A script without a runner that completes then removes the checkpoints that the numbers
    ``save_*`` of its ``checkpoint_storage`` do not keep. Without any of these numbers, all stay.

    A forked child of the process, such as a worker of a DataLoader, can read what is here, but not report, save
    checkpoints, or ask for requests to stop. Its end of the block changes nothing.
    """

    info: ClusterInfo | None
    """Task of this process, or None outside a runner."""
    trial: TrialInfo
    """Trial of this process."""
    latest_checkpoint: str | None
    """Storage id of the checkpoint to continue from. None = start from the beginning."""
    distributed: DistributedContext
    """Rank of this worker and connection to the others."""
    preempt: PreemptContext
    """Requests to stop."""
    train: TrainContext
    """Reports of metrics, progress and status."""
    checkpoint: CheckpointContext
    """Saving and restoring of checkpoints."""
    searcher: SearcherContext
    """Operations that the search method requests."""
    _settings: ExperimentSettings
    _store: TrackingStore
    _run: Run
    _stream: EventStream
    _output: ScriptOutput | None
    _limits_checkpoints: bool
    _lease: Lease | None
    _machine: MachineReport
    _owner: OwnerProcess = field(init=False, default_factory=lambda: OwnerProcess("the core context"))

    @property
    def config(self) -> ExperimentConfig:
        """Return the complete experiment config."""
        return self._settings.parsed()

    @cached_property
    def profiler(self) -> ProfilerContext:
        """Profiler of this host, which is off by default."""
        from det_core.core._profiler import ProfilerContext  # few trials use it

        self._owner.require()
        agent_id = self.info.agent_id if self.info else socket.gethostname()
        return ProfilerContext(self._store, self._run, agent_id, local_rank=self.distributed.local_rank)

    @cached_property
    def experimental(self) -> ExperimentalCoreContext:
        """Parts of the Core API that may still change."""
        from det_core.core._experimental import ExperimentalCoreContext

        return ExperimentalCoreContext(self._store, self._run)

    def alert(self, title: str | None = None, description: str | None = None, level: str | None = "info") -> None:
        """Write a message to the trial's log.

        Args:
            title: what has happened, in a few words.
            description: more about it.
            level: ``debug``, ``info``, ``warn`` or ``error``. None is the same as ``info``.

        Raises:
            ValueError: there is no such level.
        """
        number = _ALERT_LEVELS.get(level or "info")
        if number is None:
            raise ValueError(f"alert(level={level!r}): expected one of {', '.join(_ALERT_LEVELS)}")
        _log.log(number, "alert: %s", ": ".join(text for text in (title, description) if text))

    def __enter__(self) -> Self:
        self._owner.require()
        with ExitStack() as ending:
            ending.push(self)
            self.preempt._start()
            self.train._start()
            if self._output:
                self._output.start()
            if self.distributed.rank == 0:
                self._announce_start()
            self._machine.start()
            ending.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._owner.is_here:
            self.preempt._signals.restore()
            return
        if self.info and error:
            rank = self.distributed.rank if self.distributed.size > 1 else None
            batch = self.train._batches_trained or self.trial.steps_completed
            failure_notes.report_uncaught_error(rank, batch or None)

        def end(_: object, failure: BaseException | None, __: object) -> None:
            self._announce_end(failure or error)

        with ExitStack() as parts:  # closed in reverse order, each even if others raise
            parts.callback(self.preempt._signals.restore)  # a second signal must not interrupt these steps
            parts.callback(self._store.close)
            parts.callback(self._machine.close)
            if self._lease:
                parts.callback(self._lease.release)
            parts.callback(self._stream.close)
            if self._output:
                parts.callback(self._output.close)
            parts.push(end)
            parts.callback(self.train._close)
            if "profiler" in vars(self):
                parts.callback(self.profiler.off)
            parts.callback(self.distributed.close)
            parts.callback(self.preempt._close)
            if isinstance(error, InvalidHP):
                _log.error("these hyperparameters are invalid: %s", error)
                self.train.report_early_exit(EarlyExitReason.INVALID_HP)
        if isinstance(error, InvalidHP):
            sys.exit(0)

    def _remove_superfluous_checkpoints(self, lease: str) -> None:
        """Remove the checkpoints that a script's numbers do not keep, unless it has none, or a stop is requested."""
        has_any = self._limits_checkpoints and self._store.checkpoints(trial_id=self.trial.trial_id)
        if has_any and (policy := self.config.checkpoint_storage):
            from det_core.core.checkpoint_retention import remove_superfluous

            remove_superfluous(
                self._store,
                self.trial.experiment_id,
                policy,
                lambda: self.preempt._reason is None,
                lease=lease,
                on_deleted=self._stream.checkpoint_deleted,
            )

    def _announce_start(self) -> None:
        self._stream.open()
        if self.info is None:
            self._stream.emit(events.ExperimentStarted, resumed=self.trial.trial_run_id > 1)
            self._stream.emit(events.TrialStarted)
        self._stream.emit(events.WorkerStarted, steps_completed=self.trial.steps_completed)

    def _announce_end(self, error: BaseException | None) -> None:
        """Emit the events of the end. The chief of a script also ends the experiment and shows the result."""
        if self.distributed.rank != 0:
            return
        reason, left_early = describe_error(error), self.preempt._acknowledged
        self._stream.emit(events.WorkerFinished, error=reason, preempted=left_early)
        if not self._lease:
            return
        from det_core.core._unmanaged_experiment import end_unmanaged_experiment  # workers do not need it

        state = end_unmanaged_experiment(self._store, self.trial, self._lease.holder, error, left_early=left_early)
        if state.final:
            self._stream.trial_finished(self._store, self._store.trial(self.trial.trial_id), reason)
        self._stream.experiment_finished(self._store, state, reason)
        if state is State.COMPLETED:
            self._remove_superfluous_checkpoints(self._lease.holder)
        if self._output:
            self._output.finish(self._store, state, self.checkpoint._locate)


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
    config: Mapping[str, Any] | None = None,
    quiet: bool = False,
    resume: int | None = None,
) -> Context:
    """Join the task that this process runs in, or record it as a task of its own.

    A script without a runner may continue its experiment of an earlier run, with ``resume`` or the environment variable
    ``DET_RESUME``: with the same trial, hyperparameters, seed, metric and storage, from `Context.latest_checkpoint`.
    Reports after that checkpoint are archived, as when a runner restarts a trial.

    Args:
        distributed: rank of this worker and connection to the others. None = there is only one worker. It is closed
            when the context exits.
        checkpoint_storage: a directory, ``file:///directory``, ``s3://bucket/prefix``, ``gs://bucket/prefix``, or
            a mapping as in the config's ``checkpoint_storage``, of any type but shared_fs. None = the storage of the
            config under a runner, otherwise a directory beside the embedded tracking store.
        preempt_mode: which workers may call `PreemptContext.should_preempt`.
        tensorboard_mode: whether det writes and stores TensorBoard files automatically.
        config: keys of an experiment config for a script without a runner, such as ``searcher``. Under a runner it is
            ignored.
        quiet: whether a script without a runner prints nothing. Otherwise its chief prints the id of the experiment,
            the progress and the result to stderr, unless the environment variable ``DET_QUIET`` is set.
        resume: id of the experiment that a script without a runner continues. None = that of the environment variable
            ``DET_RESUME``, which takes precedence, counts for the first call in a process, and is unset by it. Without
            either, the script is a new experiment.

    Raises:
        ValueError: an argument is wrong, or the task has several slots and ``distributed`` is missing.
        ConfigError: the config is wrong.
        RecordNotFound: there is no experiment ``resume``.
        DetError: it was not recorded by a script.
        ExperimentBusy: it is running.
        NoCheckpoint: it has lost all its checkpoints.
    """
    preempt_mode, tensorboard_mode = PreemptMode(preempt_mode), TensorboardMode(tensorboard_mode)
    info = get_cluster_info()
    if info and info.trial:
        task = join_run(info, info.trial, distributed, checkpoint_storage)
    else:
        task = start_script(distributed, checkpoint_storage, config, resume)
    distributed, store, trial = task.distributed, task.store, task.trial
    searcher = task.settings.dumped["searcher"]
    storage = {"checkpoint_storage": task.settings.dumped["checkpoint_storage"]}
    run = Run(trial_id=trial.trial_id, run_id=trial.trial_run_id, allocation_id=info.allocation_id if info else "")
    stream = _make_stream(task, run, waits_for_report=not (task.is_managed or config))
    tensorboard = _make_tensorboard(task, tensorboard_mode, stream)
    is_quiet = task.is_managed or quiet or distributed.rank or os.environ.get(_QUIET)
    output = None if is_quiet else _make_output(trial, config)
    train = TrainContext(
        store,
        run,
        trial.experiment_id,
        searcher["metric"],
        smaller_is_better=searcher["smaller_is_better"],
        tensorboard=tensorboard,
        stream=stream,
        output=output,
    )
    return Context(
        info=info if task.is_managed else None,
        trial=trial,
        latest_checkpoint=task.latest_checkpoint,
        distributed=distributed,
        preempt=PreemptContext(
            distributed,
            preempt_mode,
            announce=lambda reason: stream.emit(events.PreemptionRequested, reason=reason),
            acknowledge=lambda: store.acknowledge_preemption(run.trial_id, run.run_id),
            poll=task.poll_requests,
        ),
        train=train,
        checkpoint=CheckpointContext(
            store,
            task.storage_manager,
            run,
            extract_secrets(storage)["checkpoint_storage"] if distributed.rank == 0 else {},
            distributed=distributed,
            require_steps=task.is_managed,
            flush=train.flush,
            on_saved=tensorboard.sync,
            stream=stream,
        ),
        searcher=SearcherContext(store, run, distributed, train, task.settings),
        _settings=task.settings,
        _store=store,
        _run=run,
        _stream=stream,
        _output=output,
        _limits_checkpoints=any(map(_names_numbers, (checkpoint_storage, (config or {}).get("checkpoint_storage")))),
        _lease=task.lease,
        _machine=MachineReport(store, run, distributed),
    )


def _make_stream(task: Task, run: Run, *, waits_for_report: bool) -> EventStream:
    trial = task.trial
    return EventStream(
        "worker" if task.is_managed else "script",
        cluster_id=task.cluster_id,
        experiment_id=trial.experiment_id,
        config=trial.config,
        trial={"trial_id": run.trial_id, "run_id": run.run_id, "hparams": trial.hparams},
        fetch_files=make_fetch_files(lambda: task.storage_manager),
        fetch_metrics=lambda: _surviving_metrics(task.store, run, trial.steps_completed),
        observed=task.distributed.rank == 0,
        waits_for_report=waits_for_report,
    )


def _make_tensorboard(task: Task, mode: TensorboardMode, stream: EventStream) -> TensorboardDirectory:
    return TensorboardDirectory(
        mode,
        task.storage_manager,
        task.cluster_id,
        f"tensorboard/experiment/{task.trial.experiment_id}/trial/{task.trial.trial_id}",
        rank=task.distributed.rank,
        on_stored=lambda storage_id, sizes: stream.emit(
            events.ArtifactsStored,
            storage_id=storage_id,
            resources=sizes,
            location=task.storage_manager.location(storage_id),
        ),
    )


def _surviving_metrics(store: TrackingStore, run: Run, steps_completed: int) -> Iterator[MetricsReport]:
    """Yield the metrics of a run, and those of earlier runs of the trial that it does not report again."""
    for report in store.metrics(run.trial_id):
        if report.run_id == run.run_id or report.steps_completed <= steps_completed:
            yield report


def _make_output(trial: TrialInfo, config: Mapping[str, Any] | None) -> ScriptOutput:
    from det_core.core._script_output import ScriptOutput  # processes of a runner do not need it

    return ScriptOutput(trial, has_direction="smaller_is_better" in ((config or {}).get("searcher") or {}))


def _names_numbers(block: object) -> bool:
    """Return whether a ``checkpoint_storage`` says how many checkpoints to keep."""
    return isinstance(block, Mapping) and not RETENTION_KEYS.isdisjoint(block)
