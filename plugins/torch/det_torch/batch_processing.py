"""Batch inference: processing of a dataset by all slots, which continues after interruptions.

Example::

    class Predictions(TorchBatchProcessor):
        def __init__(self, context):
            self.context = context
            self.model = context.prepare_model_for_inference(load_my_model())
            self.scores = []

        def process_batch(self, batch, batch_idx):
            with torch.no_grad():
                self.scores.append(self.model(self.context.to_device(batch)).cpu())
            self.last = batch_idx

        def on_checkpoint_start(self):
            with self.context.upload_path() as path:
                torch.save(self.scores, path / f"{self.last}.pt")
            self.scores = []

    torch_batch_process(Predictions, dataset, batch_size=64)
"""

from __future__ import annotations

import io
import logging
import math
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from det_core import core, storage
from det_core.core.rank_agreement import all_ranks_group
from det_core.errors import InvalidTrial
from det_core.interfaces.storage import StorageManager
from det_core.owner_process import OwnerProcess
from det_core.scratch import scratch_directory
from det_torch._data import DataLoader, to_device
from det_torch._metric_reducer import MetricReducer, ReducerSet
from det_torch.backend import join_script_workers
from det_torch.process_group import ProcessGroup

__all__ = ["TorchBatchProcessor", "TorchBatchProcessorContext", "get_default_device", "torch_batch_process"]

_OWN_ARGUMENTS = ("sampler", "batch_sampler")
_STATE = "reducers.pt"

_log = logging.getLogger("det.torch")


@dataclass(frozen=True)
class _Output:
    """Directory in checkpoint storage for the files of one slot."""

    manager: StorageManager
    storage_id: str
    folder: str


class TorchBatchProcessorContext:
    """Context that a `TorchBatchProcessor` gets in ``__init__``.

    Attributes:
        device: device of this slot.
    """

    def __init__(self, core_context: core.Context, output: _Output) -> None:
        self.device = get_default_device(core_context)
        self._core = core_context
        self._output = output
        self._reducers = ReducerSet()
        self._uploaded = False

    def get_hparams(self) -> dict[str, Any]:
        """Return the hyperparameters by name."""
        return dict(self._core.trial.hparams)

    def to_device(self, data: Any, warned_types: set[type] | None = None) -> Any:
        """Move data to the device of this slot, as `det_torch.to_device` does."""
        return to_device(data, self.device, warned_types)

    def prepare_model_for_inference(self, model: nn.Module) -> nn.Module:
        """Move a model to the device of this slot, and set it to evaluation mode."""
        return model.eval().to(self.device)

    def wrap_reducer(
        self,
        reducer: MetricReducer | Callable[[list[Any]], Any],
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> MetricReducer:
        """Register a reducer whose metrics are reported as validation metrics at the end.

        Checkpoints contain its state, so that the metrics include all batches after a restart, too.

        Args:
            reducer: a reducer, or a function that computes the metric from the list of all values.
            name: name of the metric. None if the reducer returns a dict of metrics.
            for_training: accepted as in `PyTorchTrialContext.wrap_reducer`, without effect.
            for_validation: like ``for_training``.

        Returns:
            The reducer to update in `TorchBatchProcessor.process_batch`.

        Raises:
            InvalidTrial: ``reducer`` is neither, or its ``state_dict()`` does not fit into checkpoints.
        """
        return self._reducers.wrap(reducer, name, for_training=True, for_validation=False)

    @contextmanager
    def upload_path(self) -> Iterator[Path]:
        """Yield an empty directory whose files are stored after the block, unless it raises.

        The files of each slot are in a directory of their own, and replace earlier files of the same names. At the
        end, the location is logged. A forked child that leaves the block stores nothing. Call this in
        `TorchBatchProcessor.on_checkpoint_start` for files that exist exactly once, because batches after the latest
        checkpoint are processed again after a restart.
        """
        owner = OwnerProcess()
        with scratch_directory("output") as directory:
            yield directory
            if not owner.is_here:
                return
            files = {f"{self._output.folder}/{name}": path for name, path in storage.scan_directory(directory).items()}
            self._output.manager.put_files(self._output.storage_id, files)
            self._uploaded = True

    def report_metrics(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Report metrics, as `det_core.core.TrainContext.report_metrics` does."""
        self._core.train.report_metrics(group, steps_completed, metrics)

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Record that this trial uses a checkpoint, so that its metrics are listed with the checkpoint."""
        self._core.experimental.report_task_using_checkpoint(checkpoint)

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Record that this trial uses a model version, so that its metrics are listed with the version."""
        self._core.experimental.report_task_using_model_version(model_version)

    def get_tensorboard_path(self) -> Path:
        """Return the directory for TensorBoard files."""
        return self._core.train.get_tensorboard_path()

    def get_distributed_rank(self) -> int:
        """Return the rank of this slot."""
        return self._core.distributed.rank

    def get_distributed_size(self) -> int:
        """Return the number of slots."""
        return self._core.distributed.size


class TorchBatchProcessor(ABC):
    """Base class of processors, of which `torch_batch_process` makes one per slot."""

    @abstractmethod
    def __init__(self, context: TorchBatchProcessorContext) -> None:
        """Prepare for batches, such as by loading a model."""

    @abstractmethod
    def process_batch(self, batch: Any, batch_idx: int) -> None:
        """Process one batch.

        Args:
            batch: the batch, on the CPU.
            batch_idx: index among the batches of this slot, from 0.
        """

    def on_checkpoint_start(self) -> None:  # noqa: B027  # optional
        """Run before each checkpoint. Store the results so far, because their batches are never processed again."""

    def on_finish(self) -> None:  # noqa: B027  # optional
        """Run after the last batch and its checkpoint."""


def get_default_device(core_context: core.Context) -> torch.device:
    """Return the GPU of this slot, or the CPU if there are no GPUs."""
    gpus = torch.cuda.device_count()
    return torch.device("cuda", core_context.distributed.local_rank % gpus) if gpus else torch.device("cpu")


def torch_batch_process(
    batch_processor_cls: type[TorchBatchProcessor],
    dataset: Dataset[Any],
    batch_size: int | None = None,
    max_batches: int | None = None,
    checkpoint_interval: int = 5,
    dataloader_kwargs: Mapping[str, Any] | None = None,
    distributed_context: core.DistributedContext | None = None,
) -> None:
    """Process all batches of a dataset, distributed over the slots.

    A trial that is restarted or resumed continues after its latest checkpoint. A script that runs by itself begins
    anew.

    Args:
        batch_processor_cls: class derived from `TorchBatchProcessor`.
        dataset: a dataset with ``__len__`` and ``__getitem__``.
        batch_size: number of records per batch. By default that of ``dataloader_kwargs``, or 1.
        max_batches: maximum number of batches per slot. Numbers below 1 are ignored with a warning.
        checkpoint_interval: number of batches of each slot between two checkpoints.
        dataloader_kwargs: further arguments of `det_torch.DataLoader`. det makes the samplers.
        distributed_context: this worker among all workers. None means the workers that the launcher started.

    Raises:
        ValueError: an argument is not as described.
        InvalidTrial: the trial continues with another number of slots than its checkpoint.
    """
    arguments = _loader_arguments(dataset, batch_size, checkpoint_interval, dataloader_kwargs or {})
    with ExitStack() as stack:
        run = stack.enter_context(core.init(distributed=distributed_context or join_script_workers(None)))
        if distributed_context is None and run.distributed.size > 1:
            stack.enter_context(closing(ProcessGroup(get_default_device(run))))
        _Inference(run, batch_processor_cls).process(DataLoader(dataset, **arguments), max_batches, checkpoint_interval)


class _Inference:
    """Processing of a dataset by the processor of one slot.

    Args:
        run: core context of the trial.
        processor: class of the processor.

    Raises:
        InvalidTrial: the checkpoint to continue from was saved by another number of slots.
    """

    def __init__(self, run: core.Context, processor: type[TorchBatchProcessor]) -> None:
        self._run = run
        self._ranks = all_ranks_group(run.distributed)
        self._rank, self._size = run.distributed.rank, run.distributed.size
        latest = run.latest_checkpoint
        found = self._ranks.by_chief(lambda: run.checkpoint.get_metadata(latest) if latest else {})
        if found and found.get("slots") != self._size:
            raise InvalidTrial(
                f"the checkpoint {latest} was saved by {found.get('slots')} slots, which divide the batches in another "
                f"way than {self._size}; set resources.slots_per_trial to {found.get('slots')} to continue"
            )
        self._done: int = found.get("steps_completed", 0)
        storage_id = found.get("default_output_uuid") or run.distributed.broadcast(f"output-{uuid.uuid4()}")
        manager = core.open_storage_block(run.config.dump()["checkpoint_storage"])
        self._context = TorchBatchProcessorContext(run, _Output(manager, storage_id, f"rank_{self._rank}"))
        self._processor = processor(self._context)
        if latest:
            self._restore(latest)

    def process(self, loader: DataLoader[Any], max_batches: int | None, interval: int) -> None:
        batches = math.ceil(len(loader) / self._size)
        if max_batches is not None and max_batches < 1:
            _log.warning("max_batches is %s, which is ignored; expected 1 or more, or None", max_batches)
        elif max_batches is not None:
            batches = min(batches, max_batches)
        mine = iter(loader.get_data_loader(skip=self._done, num_replicas=self._size, rank=self._rank))
        # All slots count the same batches, although the last ones may have one batch fewer.
        while self._done < batches:
            for batch in _next(mine):
                self._processor.process_batch(batch, self._done)
            self._done += 1
            if self._done % interval == 0 or self._done == batches:
                self._save()
                if self._rank == 0:
                    self._run.train.report_progress(self._done / batches)
                if self._done < batches and self._run.preempt.should_preempt():
                    return
        self._report_reduced_metrics()
        self._ranks.together(self._processor.on_finish)
        self._log_outputs()

    def _report_reduced_metrics(self) -> None:
        if self._context._reducers:
            metrics = self._context._reducers.reduce(self._run.distributed, training=True)
            if self._rank == 0:
                self._run.train.report_validation_metrics(self._done, metrics)

    def _save(self) -> None:
        self._ranks.together(self._processor.on_checkpoint_start)
        output = self._context._output
        metadata = {
            "steps_completed": self._done,
            "default_output_uuid": output.storage_id,
            "slots": self._size,
        }
        with self._run.checkpoint.store_path(metadata, shard=True) as (path, _):
            state = path / output.folder / _STATE
            state.parent.mkdir()
            torch.save(self._context._reducers.state_dict(), state)

    def _restore(self, latest: str) -> None:
        wanted = f"{self._context._output.folder}/{_STATE}"
        with self._run.checkpoint.restore_path(
            latest, core.DownloadMode.NoSharedDownload, selector=lambda name: name == wanted
        ) as path:
            content = (path / wanted).read_bytes()
        states = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        self._context._reducers.load_state_dict(states, get_default_device(self._run))
        _log.info("continuing after %d batches", self._done)

    def _log_outputs(self) -> None:
        if any(self._run.distributed.allgather(self._context._uploaded)) and self._rank == 0:
            output = self._context._output
            _log.info("the files of upload_path() are in %s", output.manager.location(output.storage_id) or output)


def _next(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the next batch, if there is one."""
    for batch in batches:
        yield batch
        return


def _loader_arguments(dataset: Any, batch_size: int | None, interval: int, given: Mapping[str, Any]) -> dict[str, Any]:
    if not (isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")):
        raise ValueError(
            f"the dataset is a {type(dataset).__name__}; expected one with __len__ and __getitem__, whose batches can "
            "be distributed"
        )
    if interval < 1:
        raise ValueError(f"checkpoint_interval is {interval}; expected a number of batches, 1 or more")
    if given.get("shuffle"):
        raise ValueError("dataloader_kwargs has shuffle; remove it, because a restart continues in the same order")
    if own := [name for name in _OWN_ARGUMENTS if name in given]:
        raise ValueError(f"dataloader_kwargs has {' and '.join(own)}; remove it, because det makes the samplers")
    if batch_size is not None and "batch_size" in given:
        raise ValueError("batch_size is an argument and in dataloader_kwargs; pass it once")
    return {"batch_size": 1 if batch_size is None else batch_size, **given, "shuffle": False}
