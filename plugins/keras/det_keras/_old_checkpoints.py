"""Checkpoints that the original system saved.

Until release 0.13.7, ``Model.save`` wrote one HDF5 file with the weights and the optimizer. Later releases saved the
weights with ``Model.save_weights``, and the optimizers into an HDF5 file of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import tensorflow as tf
from det_tensorflow.checkpoint_errors import translate_read_errors
from det_tensorflow.optimizer import OPTIMIZER_TYPES

from det_core.errors import InvalidTrial

_log = logging.getLogger("det.keras")

_WEIGHTS = "determined-keras-model-weights"
_OPTIMIZERS = "determined-keras-optimizer-weights.h5"
_WHOLE = ("determined-keras-model.h5", "determined-keras-model")

_SLOTS: Mapping[str, Mapping[str, str]] = {
    "Adadelta": {"accum_grad": "_accumulated_grads", "accum_var": "_accumulated_delta_vars"},
    "Adagrad": {"accumulator": "_accumulators"},
    "Adam": {"m": "_momentums", "v": "_velocities", "vhat": "_velocity_hats"},
    "Adamax": {"m": "_m", "v": "_u"},
    "Ftrl": {"accumulator": "_accumulators", "linear": "_linears"},
    "RMSprop": {"rms": "_velocities", "momentum": "_momentums", "mg": "_average_gradients"},
    "SGD": {"momentum": "momentums"},
}
"""Class of an optimizer -> slot in a checkpoint -> attribute with today's variables."""


def is_old_checkpoint(path: Path) -> bool:
    """Return whether the original system saved this checkpoint."""
    return (path / f"{_WEIGHTS}.index").is_file() or _whole_model(path) is not None


def load_old_weights(path: Path, model: tf.keras.Model) -> None:
    """Load only the weights into a model. A model that is not built yet loads them when it is, except from HDF5 files.

    Raises:
        InvalidTrial: the model has weights that were not saved, or that have other shapes.
        CheckpointCorrupt: a file is damaged.
    """
    whole = _whole_model(path)
    if whole is None:
        _load_tensorflow_weights(path, model)
        return
    with translate_read_errors(path):
        try:
            h5py.File(whole).close()  # because Keras's error about a damaged file is one about the model
            model.load_weights(str(whole))
        except (ValueError, KeyError) as error:
            raise InvalidTrial(f"{path} was saved from another model than the trial's: {error}") from error


def load_old_optimizers(path: Path, optimizers: Sequence[Any]) -> None:
    """Continue with the saved steps and slots, such as momenta. The learning rates remain those of the trial.

    An optimizer whose variables differ from the saved ones starts anew, with a warning.

    Args:
        path: the checkpoint's directory.
        optimizers: the optimizers of the trial in the order in which they were wrapped. Their variables must exist.

    Raises:
        CheckpointCorrupt: a file is damaged.
    """
    file = _whole_model(path) or path / _OPTIMIZERS
    if not file.is_file():
        _log.warning("%s has no optimizers, so those of the trial start anew", path)
        return
    with translate_read_errors(path), h5py.File(file) as content:
        for number, optimizer in enumerate(optimizers):
            group = content if "optimizer_weights" in content else content.get(f"optimizer-{number}", {})
            problem = _load_optimizer(optimizer, _named_arrays(group.get("optimizer_weights")))
            if problem:
                _log.warning("the optimizer %s of the trial starts anew: %s", type(optimizer).__name__, problem)


def _whole_model(path: Path) -> Path | None:
    return next((path / name for name in _WHOLE if (path / name).is_file()), None)


def _load_tensorflow_weights(path: Path, model: tf.keras.Model) -> None:
    # Keras would also restore the optimizer, and fail if its class differs from the saved one.
    parts = {
        name: part
        for name, part in tf.train.TrackableView(model).children(model).items()
        if not isinstance(part, OPTIMIZER_TYPES)
    }
    with translate_read_errors(path):
        try:
            status = tf.train.Checkpoint(**parts).read(str(path / _WEIGHTS)).expect_partial()
        except ValueError as error:
            raise InvalidTrial(f"{path} was saved from another model than the trial's: {error}") from error
    # TensorFlow's own check also requires random generators, which the original system did not save.
    found = {id(one) for one in status._checkpoint.object_by_proto_id.values()}
    missing = [weight.name for weight in (model.weights if model.built else ()) if id(weight) not in found]
    if missing:
        raise InvalidTrial(
            f"{path} was saved from another model than the trial's: it has no {', '.join(missing)}; "
            "build_model() must return the model that was saved"
        )


def _named_arrays(group: h5py.Group | None) -> list[tuple[str, Any]]:
    """Return the variables of an optimizer as (name, array), in the order in which it created them."""
    if group is None:
        return []
    # Keras splits lists of names that are too long for one attribute.
    parts = sorted((key for key in group.attrs if key.startswith("weight_names")), key=lambda key: (len(key), key))
    names = [name.decode() if isinstance(name, bytes) else name for part in parts for name in group.attrs[part]]
    return [(name, group[name][()]) for name in names]


def _load_optimizer(optimizer: Any, saved: Sequence[tuple[str, Any]]) -> str | None:
    """Set the variables of an optimizer, or return why they cannot be set."""
    if not saved:
        return "the checkpoint has none in its place"
    slots: dict[str, list[Any]] = {}
    for name, array in saved:
        slots.setdefault(name.rpartition("/")[2].partition(":")[0], []).append(array)
    own = _own_slots(optimizer)
    for slot, arrays in slots.items():
        shapes = [array.shape for array in arrays]
        if shapes != [tuple(variable.shape) for variable in own.get(slot, ())]:
            return f"the checkpoint has {slot} with the shapes {shapes}, unlike the optimizer"
    for slot, arrays in slots.items():
        for variable, array in zip(own[slot], arrays, strict=True):
            variable.assign(array)
    return None


def _own_slots(optimizer: Any) -> Mapping[str, Sequence[Any]]:
    """Return the variables of an optimizer by the names of their slots in checkpoints."""
    if isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer):
        own: dict[str, list[Any]] = {}
        for variable in optimizer.weights:
            own.setdefault(variable.name.rpartition("/")[2].partition(":")[0], []).append(variable)
        return own
    known = (kind.__name__ for kind in type(optimizer).__mro__ if kind.__name__ in _SLOTS)
    slots = _SLOTS.get(next(known, ""), {})
    return {
        "iter": [optimizer.iterations],
        **{slot: getattr(optimizer, attribute, ()) for slot, attribute in slots.items()},
    }
