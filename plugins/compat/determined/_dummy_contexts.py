"""Contexts that work without a task and record nothing, for code that constructs them by name.

`det_core.core.init` does not use them. It records a script that runs by itself as an experiment of its own.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, NoReturn

from det_core import core, storage
from det_core.interfaces.storage import Selector, StorageManager
from det_core.scratch import scratch_directory

__all__ = [
    "DummyCheckpointContext",
    "DummyDistributedContext",
    "DummyExperimentalCoreContext",
    "DummyPreemptContext",
    "DummyProfilerContext",
    "DummySearcherContext",
    "DummySearcherOperation",
    "DummyTrainContext",
    "SearcherContextMissing",
]

_log = logging.getLogger("det.core")


class DummyDistributedContext(core.DistributedContext):
    """Context of a process without other workers."""

    def __init__(self) -> None:
        super().__init__(rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1)


class DummyPreemptContext(core.PreemptContext):
    """Context that never asks to stop."""

    def __init__(
        self, dist: core.DistributedContext, preempt_mode: core.PreemptMode = core.PreemptMode.WorkersAskChief
    ) -> None:
        super().__init__(dist, core.PreemptMode(preempt_mode), announce=lambda reason: None, acknowledge=lambda: None)
        self._may_ask = dist.rank == 0 or core.PreemptMode(preempt_mode) is not core.PreemptMode.ChiefOnly

    def start(self) -> DummyPreemptContext:
        """Return this context, which has nothing to start."""
        return self

    def close(self) -> None:
        """Do nothing."""

    def __enter__(self) -> DummyPreemptContext:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    def should_preempt(self, auto_ack: bool = True) -> bool:
        if not self._may_ask:
            raise RuntimeError("should_preempt() was called by a worker, which PreemptMode.ChiefOnly forbids")
        return False

    def acknowledge_preemption_signal(self) -> None:
        """Do nothing."""


class DummyTrainContext(core.TrainContext):
    """Context that writes reports to the log."""

    def __init__(self, tensorboard_path: Path | None = None) -> None:
        self._path = tensorboard_path

    def set_status(self, status: str) -> None:
        _log.info("status: %s", status)

    def report_training_metrics(
        self,
        steps_completed: int,
        metrics: Mapping[str, Any],
        batch_metrics: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self.report_metrics("training", steps_completed, metrics)

    def report_validation_metrics(self, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        self.report_metrics("validation", steps_completed, metrics)

    def report_metrics(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        _log.info("%s metrics after %d steps: %s", group, steps_completed, dict(metrics))

    def report_progress(self, progress: float) -> None:
        _log.info("progress: %g", progress)

    def report_early_exit(self, reason: core.EarlyExitReason) -> None:
        _log.info("early exit: %s", core.EarlyExitReason(reason).name)

    def get_experiment_best_validation(self) -> float | None:
        return None

    def get_metadata(self) -> dict[str, Any]:
        return {}

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        _log.info("metadata: %s", dict(metadata))

    def get_tensorboard_path(self) -> Path:
        """Return the directory that the constructor got.

        Raises:
            ValueError: it got none.
        """
        if self._path is None:
            raise ValueError("this DummyTrainContext has no TensorBoard directory; pass tensorboard_path to it")
        return self._path

    def upload_tensorboard_files(
        self,
        selector: Callable[[Path], bool] = lambda _: True,
        mangler: Callable[[Path, int], PurePath] = lambda path, __: path,
    ) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing."""


class DummyCheckpointContext(core.CheckpointContext):
    """Context of a single process that stores checkpoints without recording them.

    Args:
        dist: the context of a single process.
        storage_manager: store for the files.
    """

    def __init__(self, dist: core.DistributedContext, storage_manager: StorageManager) -> None:
        if dist.size > 1:
            raise ValueError("DummyCheckpointContext stores the files of a single process; use core.init()")
        self._manager = storage_manager

    def upload(
        self,
        ckpt_dir: str | os.PathLike[str] | None,
        metadata: Mapping[str, Any] | None = None,
        *,
        shard: bool = False,
        selector: Selector | None = None,
    ) -> str:
        if ckpt_dir is None:
            raise RuntimeError("upload() got no directory, so there is nothing to store; pass ckpt_dir")
        storage_id = str(uuid.uuid4())
        files = storage.scan_directory(Path(ckpt_dir), selector)
        storage.save_checkpoint(self._manager, storage_id, files, metadata or {})
        _log.info("saved checkpoint %s", storage_id)
        return storage_id

    @contextmanager
    def store_path(
        self, metadata: Mapping[str, Any] | None = None, *, shard: bool = False
    ) -> Iterator[tuple[Path, str]]:
        storage_id = str(uuid.uuid4())
        with scratch_directory("checkpoint") as directory:
            yield directory, storage_id
            files = storage.scan_directory(directory)
            storage.save_checkpoint(self._manager, storage_id, files, metadata or {})
        _log.info("saved checkpoint %s", storage_id)

    def download(
        self,
        storage_id: str,
        ckpt_dir: str | os.PathLike[str],
        download_mode: core.DownloadMode = core.DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
        verify: bool = True,
    ) -> None:
        storage.restore_checkpoint(self._manager, storage_id, Path(ckpt_dir), selector=selector, verify=verify)

    @contextmanager
    def restore_path(
        self,
        storage_id: str,
        download_mode: core.DownloadMode = core.DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
        verify: bool = True,
    ) -> Iterator[Path]:
        with scratch_directory("checkpoint") as directory:
            self.download(storage_id, directory, download_mode, selector=selector, verify=verify)
            yield directory

    def delete(self, storage_id: str) -> None:
        storage.delete_stored_files(self._manager, storage_id)

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        return storage.read_checkpoint_metadata(self._manager, storage_id)


class DummySearcherOperation(core.SearcherOperation):
    """Operation whose results are written to the log.

    Args:
        length: total length of training.
        is_chief: whether this worker may report.
    """

    def __init__(self, length: int, is_chief: bool) -> None:
        super().__init__(
            length,
            is_chief=is_chief,
            report_progress=lambda progress: _log.info("progress: %g of %d", progress * length, length),
            complete=self._log_completion,
        )
        self.is_finished = False

    def _log_completion(self, length: int, metric: float) -> None:
        self.is_finished = True
        _log.info("completed the operation of length %d, searcher metric %g", length, metric)


class DummySearcherContext(core.SearcherContext):
    """Context with a single operation.

    Args:
        dist: rank of this worker and connection to the others.
        length: length of the operation.
    """

    def __init__(self, dist: core.DistributedContext, length: int = 1) -> None:
        self._ranks = dist
        self._length = length

    def operations(
        self, searcher_mode: core.SearcherMode = core.SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[core.SearcherOperation]:
        is_chief = self._ranks.rank == 0
        if core.SearcherMode(searcher_mode) is core.SearcherMode.ChiefOnly and not is_chief:
            raise RuntimeError("operations() was called by a worker, which SearcherMode.ChiefOnly forbids")
        operation = DummySearcherOperation(self._length, is_chief)
        yield operation
        if is_chief and not operation.is_finished:
            raise RuntimeError("the operation was not completed; call op.report_completed(metric) on the chief")

    def acknowledge_out_of_ops(self) -> None:
        """Do nothing."""

    def get_configured_units(self) -> core.Unit | None:
        return core.Unit.EPOCHS


class SearcherContextMissing(core.SearcherContext):
    """Context for a config without ``searcher.max_length``. Its methods raise ValueError."""

    def __init__(self) -> None:
        pass

    def operations(
        self, searcher_mode: core.SearcherMode = core.SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> NoReturn:
        _no_operations()

    def acknowledge_out_of_ops(self) -> None:
        _no_operations()

    def get_configured_units(self) -> NoReturn:
        _no_operations()


class DummyProfilerContext(core.ProfilerContext):
    """Profiler that does nothing."""

    def __init__(self) -> None:
        pass

    def on(self, sampling_interval: float = 1, samples_per_report: int = 10) -> None:
        """Do nothing."""

    def off(self) -> None:
        """Do nothing."""


class DummyExperimentalCoreContext(core.ExperimentalCoreContext):
    """Context that records no links."""

    def __init__(self) -> None:
        pass

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Do nothing."""

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Do nothing."""


def _no_operations() -> NoReturn:
    raise ValueError(
        "there are no searcher operations, because the config's searcher has no max_length; add one, for example "
        "`max_length: {batches: 1000}`, or train without operations()"
    )
