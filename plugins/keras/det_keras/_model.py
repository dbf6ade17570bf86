"""Validation of a trial's model, and creation of all its variables before a restore."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf
from det_tensorflow.optimizer import OPTIMIZER_TYPES, uses_exchange

from det_core.errors import InvalidTrial
from det_keras import _metrics
from det_keras._context import TFKerasTrialContext
from det_keras._data import make_zeros

_log = logging.getLogger("det.keras")


def check_model(returned: Any, context: TFKerasTrialContext) -> tf.keras.Model:
    """Return the model that ``build_model`` returned, if it is valid.

    Raises:
        InvalidTrial: the model or its optimizer was not wrapped, or the model is not compiled.
    """
    model = context._model
    if model is None or returned is not model:
        raise InvalidTrial(
            "build_model() did not return a wrapped model; before compiling the model, add: "
            "model = self.context.wrap_model(model)"
        )
    if getattr(model, "optimizer", None) is None:
        raise InvalidTrial("build_model() returned a model that is not compiled; add: model.compile(optimizer, loss)")
    _check_optimizer(model, context)
    if model._steps_per_execution is not None and int(model._steps_per_execution) != 1:
        _log.warning(
            "steps_per_execution is %d, but det uses 1, because it counts batches", int(model._steps_per_execution)
        )
        model._steps_per_execution.assign(1)
    model.autotune_steps_per_execution = False
    return model


def prepare_model(model: tf.keras.Model, spec: Any) -> Any:
    """Create all variables that training uses.

    Args:
        model: the model to train.
        spec: the type and shape of a batch.

    Returns:
        The function that trains the next batch of an iterator.
    """
    _metrics.reset_each_batch(model)
    step = model.make_train_function(force=True)
    if hasattr(step, "get_concrete_function"):
        step.get_concrete_function(tf.data.IteratorSpec(spec))  # tracing creates them without training
        return step
    if not model.built:
        x, _, _ = tf.keras.utils.unpack_x_y_sample_weight(spec)
        model(tf.nest.map_structure(make_zeros, x), training=False)
    tf.function(_update).get_concrete_function(model)
    return step


def _update(model: tf.keras.Model) -> None:
    """Update with gradients of zero. This is only traced, to create the variables of optimizer and aggregation."""
    model.optimizer.apply_gradients([(tf.zeros_like(one), one) for one in model.trainable_variables])


def list_optimizers(model: tf.keras.Model) -> list[Any]:
    """Return the optimizers of a model, which may have several if it overrides ``compile`` and ``train_step``."""
    return [one for one in vars(model).values() if isinstance(one, OPTIMIZER_TYPES)]


def check_batches(model: tf.keras.Model, spec: Any, name: str) -> None:
    """Check that the elements of a dataset are batches. Data for a ``train_step`` of the trial may have any form.

    Args:
        model: the model that reads the data.
        spec: the type and shape of an element.
        name: training or validation, for errors.

    Raises:
        InvalidTrial: the elements are single records.
    """
    if type(model).train_step is not tf.keras.Model.train_step:
        return
    x, *_ = tf.keras.utils.unpack_x_y_sample_weight(spec)
    inputs = _shapes(getattr(model, "inputs", None))
    if any(shape.rank == 0 for shape in _shapes(spec)) or (inputs and all(map(_is_record, _shapes(x), inputs))):
        raise InvalidTrial(
            f"build_{name}_data_loader() returned a dataset of single records, {spec}; add: "
            "dataset = dataset.batch(self.context.get_per_slot_batch_size())"
        )


def _shapes(parts: Any) -> list[tf.TensorShape]:
    return [part.shape for part in tf.nest.flatten(parts or [])]


def _is_record(shape: tf.TensorShape, of_input: tf.TensorShape) -> bool:
    """Return whether a shape is that of one record, and not that of a batch of numbers, which Keras makes columns."""
    return bool(of_input[1:].rank == shape.rank and shape.is_compatible_with(of_input[1:]) and of_input[1:] != [1])


def _check_optimizer(model: tf.keras.Model, context: TFKerasTrialContext) -> None:
    native = getattr(model.optimizer, "optimizer", None)
    if isinstance(native, tf.compat.v1.train.Optimizer):
        raise InvalidTrial(
            f"the model was compiled with a tf.compat.v1.train.{type(native).__name__}, whose state Keras cannot save; "
            "use the one of tf.keras.optimizers.legacy, such as tf.keras.optimizers.legacy.Adam()"
        )
    aggregation = context.get_experiment_config()["optimizations"]["aggregation_frequency"]
    slots = context.distributed.size
    exchanged = [uses_exchange(optimizer) for optimizer in list_optimizers(model)]
    if not any(exchanged) and (aggregation > 1 or slots > 1):
        why = f"optimizations.aggregation_frequency is {aggregation}" if slots == 1 else f"there are {slots} slots"
        raise InvalidTrial(
            f"{why}, but the model was compiled with an optimizer that was not wrapped; before compile(), add: "
            "optimizer = self.context.wrap_optimizer(tf.keras.optimizers.Adam())"
        )
