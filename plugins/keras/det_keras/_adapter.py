"""Adapter through which TrialLoop drives a TFKerasTrial."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_core.interfaces.framework import Metrics, OnAllWorkers, TrialAdapter
from det_core.trial import trial_description
from det_core.trial.random_generators import derive_seed
from det_keras import _checkpoint, _load, _model, _old_checkpoints
from det_keras._callback_list import KerasCallbackList
from det_keras._context import TFKerasTrialContext
from det_keras._data import DatasetSource, training_source, validation_source
from det_keras._dataset_stream import END_OF_DATA, DatasetStream
from det_keras._epochs import Epochs
from det_keras._metrics import metrics_to_json, reduce_over_slots, with_arrays
from det_keras._random import Generators
from det_keras._recurrent_states import RecurrentStates, restored_variables
from det_keras._trial import TFKerasTrial

_log = logging.getLogger("det.keras")


class KerasAdapter(TrialAdapter):
    """Adapter that trains and evaluates one `TFKerasTrial` in this process.

    Args:
        trial: the trial to train.
        context: the context of the trial.
        description: description of the trial, which every checkpoint stores for
            `det_keras.load_model_from_checkpoint_path`.

    Raises:
        InvalidTrial: the trial is incomplete, or its data cannot be used.
    """

    def __init__(
        self, trial: TFKerasTrial, context: TFKerasTrialContext, *, description: Mapping[str, Any] | None = None
    ) -> None:
        self._context = context
        self._description = description
        self._seed = partial(derive_seed, context.get_trial_seed())
        self._model = _model.check_model(trial.build_model(), context)
        self._training = training_source(trial.build_training_data_loader(), context)
        self._validation = validation_source(trial.build_validation_data_loader(), context)
        self._callbacks = KerasCallbackList(trial.keras_callbacks(), context, self._training.batches)
        self._states: Any = None
        """States of the callbacks from the checkpoint, until training begins."""
        self._stream = DatasetStream(self._training)
        spec = self._training.start(0).element_spec
        for name, read in (("training", spec), ("validation", self._validation.start(0).element_spec)):
            _model.check_batches(self._model, read, name)
        self._train_batch = _model.prepare_model(self._model, spec)
        self._test_batch = self._model.make_test_function(force=True)
        self._epochs = Epochs(self._training.batches)
        self._batch = 0
        self._reported = True
        """Whether no batch was trained since the last report."""
        self._generators = Generators(self._model)
        self._recurrent = RecurrentStates(self._model)
        self._seed_slot()

    @property
    def batches_per_epoch(self) -> int | None:
        return self._training.batches

    @property
    def records_per_batch(self) -> int:
        return self._context.get_global_batch_size()

    def started(self) -> None:
        self._context.backend.broadcast(self._variables())
        self._model._train_counter.assign(self._batch)  # the step of what TensorBoard's callback writes
        self._callbacks.begin(self._states)

    def write_initial_state(self, path: Path, *, most: int) -> int:
        size: int = sum(one.shape.num_elements() * one.dtype.size for one in self._variables())
        if size <= most:
            _checkpoint.write_checkpoint(self._context, {"slots": [self._generators.state()]}, path)
        return size

    def rehearse(self, together: OnAllWorkers) -> Metrics | None:
        distributed = self._context.distributed
        of_metrics = (metric.weights for metric in self._model.metrics)
        aggregated = (exchange.variables for exchange in self._context.exchanges)
        variables = [*self._variables(), *chain.from_iterable((*of_metrics, *aggregated)), self._model._test_counter]
        apart = self._generators.forked(self._seed("validation"))
        with apart, self._recurrent.kept(), restored_variables(variables):
            silent = tf.keras.callbacks.CallbackList()
            evaluated = together(lambda: self._evaluate_slot(self._validation.first_batch(), silent, _never))
            metrics = reduce_over_slots(self._model, *(evaluated[distributed.rank] or ({}, 0)), distributed)
        return _as_validation(metrics)

    def train(self, batches: int, stop: Callable[[], bool]) -> Sequence[Metrics]:
        if self._reported:
            self._reported = False
            self._callbacks.workload("on_train_workload_begin", self._batch, batches, {})
        rows: list[dict[str, Any]] = []
        with self._noting_errors("training", self._training):
            pending: list[Any] = []
            for _ in range(batches):
                pending.append(self._train_next())
                if self._epochs.ends(self._batch):
                    self._settle(pending, rows)
                    epoch, _ = self._epochs.place(self._batch - 1)
                    self._callbacks.keras.on_epoch_end(epoch, self._epochs.end())
                self._callbacks.heed()
                if stop():
                    break
            self._settle(pending, rows)
        return rows

    def reported(self, metrics: Metrics, batch_metrics: Sequence[Metrics]) -> None:
        self._reported = True
        self._callbacks.workload("on_train_workload_end", self._batch, dict(metrics))
        self._store_tensorboard()

    def validate(self, stop: Callable[[], bool]) -> Metrics | None:
        if stop():
            return None
        if self._callbacks.has_test_begin():
            stop = _never
        self._share_buffers()
        states = self._callbacks.state()
        # Separate generators and states, so that the number of validations does not affect training.
        apart = self._generators.forked(self._seed("validation"))
        with apart, self._recurrent.kept(), self._noting_errors("validation", self._validation):
            logs = self._evaluate(stop)
            if logs is None:
                self._callbacks.load(states)
                return None
            metrics = _as_validation(logs)
            self._callbacks.keras.on_test_end(with_arrays(metrics))
        self._callbacks.heed()
        self._store_tensorboard()
        return metrics

    def snapshot(self) -> Callable[[Path], None]:
        self._share_buffers()
        self._context.share_aggregated()
        own = {**self._generators.state(), "recurrent": self._recurrent.state()}
        slots = self._context.distributed.gather(own)
        state = {
            "batches": self._batch,
            "slots": slots,
            "data": self._stream.state(),
            "callbacks": self._callbacks.state(),
            "epoch": self._epochs.state(),
            "reported": self._reported,
        }
        return partial(self._write, state)

    def load(self, path: Path, *, batches_trained: int) -> None:
        if batches_trained == 0:  # checkpoint of another trial
            _load.load_weights(self._model, path)
            if _old_checkpoints.is_old_checkpoint(path):
                own = self._context._optimizers or [self._model.optimizer]
                _old_checkpoints.load_old_optimizers(path, own)
            return
        state = _checkpoint.read_state(path)
        _checkpoint.restore_variables(self._context, state, path)
        self._batch, self._reported, self._states = batches_trained, state["reported"], state["callbacks"]
        self._epochs.load(state["epoch"])
        self._stream.load(state["data"])
        self._seed_slot()
        if len(state["slots"]) == self._context.distributed.size:
            own = state["slots"][self._context.distributed.rank]
            self._generators.load(own)
            if "recurrent" in own:  # the first release did not save them
                self._recurrent.load(own["recurrent"])

    def metadata(self) -> Mapping[str, Any]:
        return {"framework": f"tensorflow-{tf.__version__}", "format": "tf_checkpoint", "trial_framework": "keras"}

    def close(self) -> None:
        self._callbacks.end()
        self._store_tensorboard()

    def _train_next(self) -> Any:
        """Train a batch and return its metrics, which may still be on an accelerator."""
        epoch, number = self._epochs.place(self._batch)
        callbacks = self._callbacks.keras
        if number == 0:
            callbacks.on_epoch_begin(epoch)
        callbacks.on_train_batch_begin(number)
        logs = self._stream.feed(self._train_batch)
        callbacks.on_train_batch_end(number, logs)
        self._batch += 1
        return logs

    def _settle(self, pending: list[Any], rows: list[dict[str, Any]]) -> None:
        """Move metrics of the current epoch from ``pending`` to ``rows``, as JSON-compatible values."""
        settled = [metrics_to_json(logs, "train_step") for logs in pending]
        self._epochs.add(settled)
        rows += settled
        pending.clear()

    def _evaluate(self, stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Return the metrics over the whole set, the same on all slots, or None if ``stop()`` was true."""
        evaluated = self._evaluate_slot(self._validation.start(0), self._callbacks.keras, stop)
        if evaluated is None:
            return None
        metrics = reduce_over_slots(self._model, *evaluated, self._context.distributed)
        if not metrics:
            raise InvalidTrial("the validation data has no batch; expected at least one")
        return metrics

    def _evaluate_slot(
        self, data: tf.data.Dataset, callbacks: tf.keras.callbacks.CallbackList, stop: Callable[[], bool]
    ) -> tuple[dict[str, Any], int] | None:
        """Return the metrics of this slot and the number of batches, or None if ``stop()`` was true."""
        batches, logs, done = self._validation.batches, None, 0
        self._model.reset_metrics()
        callbacks.on_test_begin()
        iterator = iter(data)
        for number in count() if batches is None else range(batches):
            callbacks.on_test_batch_begin(number)
            try:
                logs = self._test_batch(iterator)
            except END_OF_DATA:
                break
            callbacks.on_test_batch_end(number, logs)
            done += 1
            if stop():
                return None
        return {} if logs is None else metrics_to_json(logs, "test_step"), done

    def _variables(self) -> list[tf.Variable]:
        """Return the variables of the model and of its optimizers."""
        found = (optimizer.variables for optimizer in _model.list_optimizers(self._model))
        of_optimizers = (variables() if callable(variables) else variables for variables in found)
        return [*self._model.variables, *chain.from_iterable(of_optimizers)]

    def _write(self, state: Mapping[str, Any], path: Path) -> None:
        _checkpoint.write_checkpoint(self._context, state, path)
        if self._description:
            trial_description.write_description(self._description, path)
        self._callbacks.workload("on_checkpoint_end", str(path))

    def _share_buffers(self) -> None:
        """Copy the chief's non-trainable variables, such as running means, to all slots. Each slot updates its own."""
        if self._context.distributed.size > 1 and self._model.non_trainable_variables:
            self._context.backend.broadcast(self._model.non_trainable_variables)

    def _seed_slot(self) -> None:
        """Seed this slot differently from the others. The chief keeps the seed of single-process training."""
        rank = self._context.distributed.rank
        if rank:
            self._generators.seed(self._seed("slot", rank, self._batch))

    def _store_tensorboard(self) -> None:
        self._context.store_tensorboard_files()

    @contextmanager
    def _noting_errors(self, activity: str, data: DatasetSource) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            epoch, _ = self._epochs.place(self._batch)
            _log.error("%s failed at batch %d, in epoch %d (both count from 0)", activity, self._batch, epoch)
            if data.reader and data.reader.error:
                raise data.reader.error from error
            raise


def _as_validation(logs: Mapping[str, Any]) -> dict[str, Any]:
    return {f"val_{name}": value for name, value in logs.items()}


def _never() -> bool:
    return False
