"""Adapter through which det's training loop drives a `PyTorchTrial`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import torch

from det_core.core import single_process
from det_core.core.rank_agreement import all_ranks_group
from det_core.interfaces.framework import SCHEDULE_END, Metrics, OnAllWorkers, TrialAdapter
from det_core.trial import trial_description
from det_core.trial.random_generators import derive_seed
from det_torch._batch_reduction import reduce_metrics
from det_torch._callback import PyTorchCallbackList
from det_torch._checkpoints import _reader, _training_state
from det_torch._checkpoints._continuation_warnings import (
    find_schedule_ends,
    warn_of_ending_schedules,
    warn_of_other_data,
)
from det_torch._checkpoints._left_out_state import LeftOutState, watch_left_out_state
from det_torch._checkpoints._packing import pack_state
from det_torch._checkpoints._slot_state import (
    SLOT_PARTS,
    gather_slot_parts,
    interleave_rows,
    seed_slot,
    select_slot_state,
)
from det_torch._checkpoints._staging import HostStaging
from det_torch._context import PyTorchTrialContext
from det_torch._data import (
    TrainingStream,
    UnmanagedStream,
    check_resizable,
    dataset_length,
    to_device,
    training_data,
    validation_data,
)
from det_torch._metrics import (
    materialize_metrics,
    metric_to_json,
    to_numpy_metrics,
    training_metrics,
    validation_metrics,
)
from det_torch._module_flags import collect_flags, evaluation_mode, list_frozen_modules, restore_flags
from det_torch._random import forked, set_rng_state
from det_torch._rehearsal import count_state_bytes, has_lazy_parameters, restored_state
from det_torch._trial import PyTorchTrial
from det_torch._trial_steps import build_trial_steps
from det_torch.backend import TorchBackend

_log = logging.getLogger("det.torch")

_BEFORE_VALIDATION = ("on_validation_start", "on_validation_epoch_start")
"""Hooks after which a validation is not interrupted.

Such a hook may swap in other weights, such as an average, until ``on_validation_end``. Checkpoints must not save those
weights."""


class PyTorchAdapter(TrialAdapter):
    """Adapter that trains and evaluates one `PyTorchTrial` in this process.

    Args:
        trial: trial to train and evaluate.
        context: context that the trial was made with.
        description: description of the trial that is stored with every checkpoint (`det_core.trial.trial_description`).
        first_batch: number of the batch at which this run begins, from 0. It is passed to callbacks.
        latest: storage id of the checkpoint from which this run begins. None if there is none.
        trust: whether loading that checkpoint may run code stored in it.

    Raises:
        InvalidTrial: the trial is incomplete, or its data cannot be used.
    """

    def __init__(
        self,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        *,
        description: Mapping[str, Any] | None = None,
        first_batch: int = 0,
        latest: str | None = None,
        trust: bool = False,
    ) -> None:
        self._trial = trial
        self._context = context
        self._loop = loop = context._loop
        self._description = description
        self._trust = trust
        self._ending = ExitStack()
        if loop.tensorboard:
            self._ending.callback(loop.tensorboard.close)
            self._ending.callback(self._store_tensorboard)
        self._callbacks = PyTorchCallbackList(trial.build_callbacks())
        self._ending.enter_context(self._callbacks.running(first_batch, latest))
        self._steps = build_trial_steps(trial, context, self._callbacks)
        context.backend.ready()
        _training_state.check_tensor_classes(context)
        if frozen := list_frozen_modules(loop.bare_models):
            _log.warning(
                "the trial put %s into evaluation mode, but training begins with all modules in training mode; call "
                "eval() in on_training_start() of a callback to keep a module in evaluation mode",
                ", ".join(frozen),
            )
        for model in context.models:
            model.train()
        self._flags = collect_flags(loop.bare_models)
        """Flags of all modules at the beginning. Checkpoints have flags only if they have changed since."""
        loop.first_batch = first_batch
        self._left_out: LeftOutState | None = None
        self._training, self._validation = self._data()
        self._ending.callback(self._training.close)
        self._batches: Iterator[Any] | None = None
        self._rng_state: Mapping[str, Any] | None = None
        self._loss_was_nan = False
        self._names: set[str] = set()
        """Names of the metrics of all batches since the last report."""
        self._moved = partial(to_device, device=context.device) if loop.moves_batches else _as_is
        self._staging = HostStaging()
        loop.batches_per_epoch = self._training.batches_per_epoch
        seed_slot(context.distributed, context.get_trial_seed(), 0)

    @property
    def batches_per_epoch(self) -> int | None:
        return self._loop.batches_per_epoch

    @property
    def records_per_batch(self) -> int:
        return self._context.get_global_batch_size()

    @property
    def writes_behind(self) -> bool:
        return not self._callbacks.has("on_checkpoint_write_end")  # this hook runs on the main thread

    @property
    def sharded(self) -> bool:
        return self._context.backend.sharded

    def started(self) -> None:
        self._context.backend.begin()
        self._callbacks.call("on_training_start")
        if self._left_out:
            self._left_out.note_values()
        if self._rng_state:  # last, because setup code and callbacks may draw random numbers
            set_rng_state(self._rng_state)
        if self._loop.profiler is not None:
            self._ending.enter_context(self._loop.profiler)

    def write_initial_state(self, path: Path, *, most: int) -> int:
        if has_lazy_parameters(self._context):
            return 0
        size = count_state_bytes(self._context)
        if size <= most:
            state = {
                **_training_state.collect_training_state(self._context),
                **_training_state.collect_slot_state(self._context),
                "reducers": self._loop.reducers.state_dict(),
            }
            packed = dict(pack_state(state, "checkpoint"))
            _training_state.write_training_state(packed, path, safetensors=self._trial.safetensors)
        return size

    def rehearse(self, together: OnAllWorkers) -> Metrics | None:
        context = self._context
        if self._steps.full_dataset or has_lazy_parameters(context):
            return None
        with (
            restored_state(context, self._validation, self._staging.copy),
            evaluation_mode(context.models),
            forked(self._seed("validation")),
            self._loop.reducers.validating(),
        ):
            metrics = self._reduced_rows(interleave_rows(together(lambda: self._rows(_never, most=1) or [])))
        if self._left_out:
            self._left_out.note_values()
        return None if self._callbacks.may_add_metrics() else metrics

    def train(self, batches: int, stop: Callable[[], bool]) -> Sequence[Metrics]:
        context, loop, train_batch = self._context, self._loop, self._train_batch()
        data, moved, call = self._batches or self._begin_reading(None), self._moved, self._callbacks.call
        epoch_len = loop.batches_per_epoch or sys.maxsize
        left_out = self._left_out if loop.batch == 0 else None
        rows: list[dict[str, Any]] = []
        with self._noting_errors("training"):
            for _ in range(batches):
                batch = moved(next(data))
                epoch, index = divmod(loop.batch, epoch_len)
                if index == 0:
                    call("on_training_epoch_start", epoch)
                rows.append(training_metrics(train_batch(batch, epoch, loop.batch)))
                if loop.amp or context.lr_schedulers:
                    loop.end_batch(context.lr_schedulers, context.aggregation_frequency)
                else:
                    loop.batch += 1
                if left_out is not None:
                    left_out.note_tensors()
                    left_out = None
                if index == epoch_len - 1:
                    call("on_training_epoch_end", epoch)
                if loop.profiler is not None:
                    loop.profiler.step()
                if stop():
                    break
        materialize_metrics(rows)
        self._watch_for_nan(rows)
        self._names.update(*rows)
        return rows

    def reduced(self) -> Metrics:
        reducers, distributed = self._loop.reducers, self._context.distributed
        metrics = reducers.reduce(distributed, training=True, taken=self._names)
        reducers.reset(training=True)
        self._names.clear()
        return metrics

    def reported(self, metrics: Metrics, batch_metrics: Sequence[Metrics]) -> None:
        if self._callbacks.has("on_training_workload_end"):
            rows = list(map(to_numpy_metrics, batch_metrics))
            self._callbacks.call("on_training_workload_end", to_numpy_metrics(metrics), rows)
        self._store_tensorboard()

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        if stop():
            return None
        if any(map(self._callbacks.has, _BEFORE_VALIDATION)):
            stop = _never
        with evaluation_mode(self._context.models):
            return self._validate(stop)

    def _validate(self, stop: Callable[[], bool]) -> Metrics | None:
        self._context.backend.share_buffers()
        # Validation has its own generators, so that the number of validations does not influence training.
        with forked(self._seed("validation")), self._noting_errors("validation"):
            metrics = self._validated(stop)
        if metrics is None:
            return None
        metrics = to_numpy_metrics(metrics)
        self._callbacks.call("on_validation_end", metrics)
        self._store_tensorboard()
        return {name: metric_to_json(name, value) for name, value in metrics.items()}  # callbacks may have changed them

    def snapshot(self) -> Callable[[Path], None]:
        if self._left_out and self._loop.batch > 1:
            self._left_out.warn_of_changes()
            self._left_out = None
        self._context.backend.share_buffers()
        own = {
            **_training_state.collect_slot_state(self._context),
            "callbacks": self._callbacks.state_dict(),
            "reducers": self._loop.reducers.state_dict(),
            "data": self._training.state(),
        }
        others = gather_slot_parts(own, self._context.distributed, self._staging.copy)
        if others is None:
            return self._context.backend.save
        state = {
            **_training_state.collect_training_state(self._context),
            **own,
            "data_lengths": self._data_lengths,
            "data_position": layout.position() if (layout := self._training.layout) else None,
            "training_length": self._context.training_length,
        }
        if (changed := collect_flags(self._loop.bare_models)) != self._flags:
            state["flags"] = changed
        self._callbacks.call("on_checkpoint_save_start", state)
        packed = dict(pack_state(state, "checkpoint"))
        if others:
            packed[SLOT_PARTS] = others
        return partial(self._write, self._staging.copy(packed))

    def saved(self, storage_id: str) -> None:
        self._callbacks.call("on_checkpoint_upload_end", storage_id)

    def batches_trained(self, path: Path) -> int | None:
        return _reader.read_batches_trained(path, trust=self._trust)

    def load(self, path: Path, *, batches_trained: int) -> None:
        state: Mapping[str, Any] = _reader.read_checkpoint(path, trust=self._trust, shards=not self.sharded)
        self._callbacks.call("on_checkpoint_load_start", state)
        if batches_trained == 0:  # checkpoint of another trial
            _training_state.restore_warm_start(self._context, state, path)
            return
        state = select_slot_state(state, self._context.distributed)
        seed_slot(self._context.distributed, self._context.get_trial_seed(), batches_trained)
        _training_state.restore_training_state(self._context, state, path)
        if "flags" in state:
            restore_flags(self._loop.bare_models, state["flags"])
        self._callbacks.load_state_dict(state.get("callbacks", {}))
        if "reducers" in state:  # the original reported before each checkpoint, and did not save them
            self._loop.reducers.load_state_dict(state["reducers"], self._context.device)
        self._loop.batch = self._loop.first_batch = batches_trained
        self._left_out = None  # the first run has named it
        if self._context.distributed.rank == 0:
            warn_of_other_data(state.get("data_lengths", {}), self._data_lengths)
            warn_of_ending_schedules(self._context, state.get("training_length"))
        self._begin_reading(state.get("data"), state.get("data_position"))
        self._rng_state = state.get("rng_state")
        if self._rng_state:
            set_rng_state(self._rng_state)

    def metadata(self) -> Mapping[str, Any]:
        weights = "safetensors" if self._trial.safetensors and not self.sharded else "pickle"
        ends = [end for end, _ in find_schedule_ends(self._context, self._context.training_length or 0)]
        return {
            "framework": f"torch-{torch.__version__}",
            "format": weights,
            "trial_framework": "pytorch",
            **({SCHEDULE_END: min(ends)} if ends else {}),
        }

    def close(self) -> None:
        self._ending.close()

    def _train_batch(self) -> Callable[[Any, int, int], Any]:
        """Return the trial's ``train_batch``, wrapped in the contexts of the backend and of mixed precision."""
        context, loop, train_batch = self._context, self._loop, self._steps.train_batch
        backend = context.backend
        if loop.amp is None and type(backend).batch is TorchBackend.batch:
            return train_batch

        def within(*args: Any) -> Any:
            with backend.batch(updates=loop.updates(context.aggregation_frequency)), loop.autocast():
                return train_batch(*args)

        return within

    def _data(self) -> tuple[TrainingStream, Iterable[Any]]:
        training = self._trial.build_training_data_loader()
        validation = self._trial.build_validation_data_loader()
        self._data_lengths = {"training": dataset_length(training), "validation": dataset_length(validation)}
        if self._context.distributed.rank == 0:
            self._left_out = watch_left_out_state(self._context, self._trial, self._callbacks, (training, validation))
        config = self._context.get_experiment_config()
        rank, size = self._context.distributed.rank, self._context.distributed.size
        stream: TrainingStream
        if self._loop.data_as_is:
            stream = UnmanagedStream(training)
        else:
            seed, epoch = self._seed("training data"), config["records_per_epoch"]
            stream = training_data(training, rank=rank, size=size, seed=seed, records_per_epoch=epoch)
        if config["resources"]["min_slots_per_trial"]:
            check_resizable(stream, batch_size=self._context.get_per_slot_batch_size(), size=size)
        if self._loop.data_as_is:
            return stream, validation
        whole = self._steps.full_dataset
        seed = self._seed("validation data")
        batches, _ = validation_data(validation, rank=rank, size=size, seed=seed, whole=whole)
        return stream, batches

    def _evaluate(self) -> Iterator[dict[str, Any]]:
        evaluate, may_be_empty = self._steps.evaluate, bool(self._loop.reducers)
        if self._steps.full_dataset:
            yield validation_metrics(evaluate(self._validation, 0), "evaluate_full_dataset", may_be_empty=may_be_empty)
            return
        for index, batch in enumerate(self._validation):
            returned = evaluate(self._moved(batch), index)
            yield validation_metrics(returned, "evaluate_batch", may_be_empty=may_be_empty)

    def _validated(self, stop: Callable[[], bool]) -> dict[str, Any] | None:
        self._callbacks.call("on_validation_start")
        if self._steps.full_dataset:
            return self._validated_on_chief(stop)
        self._callbacks.call("on_validation_epoch_start")
        with self._loop.reducers.validating():
            own_rows = self._rows(stop)
            if own_rows is None:
                return None
            rows = interleave_rows(self._context.distributed.allgather(own_rows))
            if self._callbacks.has("on_validation_epoch_end"):
                rows = list(map(to_numpy_metrics, rows))
                self._callbacks.call("on_validation_epoch_end", rows)
            return self._reduced_rows(rows)

    def _reduced_rows(self, rows: Sequence[Metrics]) -> dict[str, Any]:
        """Return the validation metrics of all slots, given the rows of all batches."""
        metrics = reduce_metrics(rows, self._trial.evaluation_reducer())
        reduced = self._loop.reducers.reduce(self._context.distributed, training=False, taken=metrics)
        return {**metrics, **reduced}

    def _validated_on_chief(self, stop: Callable[[], bool]) -> dict[str, Any] | None:
        distributed = self._context.distributed
        with self._loop.reducers.validating():
            if distributed.rank:  # the chief may need the parts of the models that this slot holds
                with self._context.backend.evaluation():
                    pass
            return all_ranks_group(distributed).by_chief(partial(self._validated_whole, stop))

    def _validated_whole(self, stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Run ``evaluate_full_dataset``, which happens on the chief only. Return None if it was stopped."""
        rows = self._rows(stop)
        if rows is None:
            return None
        return {**rows[0], **self._loop.reducers.reduce(single_process(), training=False, taken=rows[0])}

    def _rows(self, stop: Callable[[], bool], most: int | None = None) -> list[dict[str, Any]] | None:
        """Return the metrics of every evaluation call as plain values, or None if the validation was stopped.

        Args:
            stop: function that is called after each batch, and returns whether to stop.
            most: maximum number of batches.
        """
        with self._context.backend.evaluation(), torch.no_grad(), self._loop.autocast():
            rows = list(takewhile(lambda _: not stop(), islice(self._evaluate(), most)))
        if stop():
            return None
        materialize_metrics(rows)
        return rows

    def _write(self, state: dict[str, Any], path: Path) -> None:
        if self.sharded:
            self._context.backend.save(path)
        _training_state.write_training_state(state, path, safetensors=self._trial.safetensors)
        if self._description:
            trial_description.write_description(self._description, path)
        self._callbacks.call("on_checkpoint_write_end", str(path))

    def _begin_reading(self, state: Any, position: Mapping[str, int] | None = None) -> Iterator[Any]:
        self._batches = self._training.start(self._loop.batch, state, position)
        return self._batches

    def _store_tensorboard(self) -> None:
        if self._loop.tensorboard and self._context.get_enable_tensorboard_logging():
            self._loop.tensorboard.upload()

    def _seed(self, purpose: str) -> int:
        return derive_seed(self._context.get_trial_seed(), purpose)

    @contextmanager
    def _noting_errors(self, activity: str) -> Iterator[None]:
        try:
            yield
        except Exception:
            batch, epoch = self._context.current_train_batch(), self._context.current_train_epoch()
            _log.error("%s failed at batch %d, in epoch %d (both count from 0)", activity, batch, epoch)
            raise

    def _watch_for_nan(self, rows: Sequence[Metrics]) -> None:
        if self._loss_was_nan:
            return
        first = self._loop.batch - len(rows)
        for batch, row in enumerate(rows, first):
            if isinstance(loss := row.get("loss"), float) and loss != loss:
                self._loss_was_nan = True
                _log.warning(
                    "the loss of batch %d is NaN; training continues, and later NaN losses are not logged", batch
                )
                return


def _never() -> bool:
    return False


def _as_is(batch: Any) -> Any:
    return batch
