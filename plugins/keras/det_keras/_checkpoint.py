"""Files of a checkpoint. TensorFlow saves the variables, and everything else is JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_core.package_commands import package_command
from det_core.storage import read_object
from det_keras._context import TFKerasTrialContext

FORMAT = 1
VARIABLES = "keras"
"""Prefix of the files ``keras.index`` and ``keras.data-*``, with the model, its optimizer and aggregated gradients."""
STATE = "keras.json"
"""Name of the file with the remaining state."""


def write_checkpoint(context: TFKerasTrialContext, state: Mapping[str, Any], path: Path) -> None:
    """Write the variables and the state into a checkpoint's directory."""
    model = context._model
    _everything(context).write(str(path / VARIABLES))
    text = json.dumps({"format": FORMAT, "weights": _shapes(model), **state})
    (path / STATE).write_text(text, encoding="utf-8")


def read_state(path: Path) -> dict[str, Any]:
    """Return the state in a checkpoint's directory.

    Raises:
        InvalidTrial: there is none, or a release with another format wrote it.
        CheckpointCorrupt: the file is damaged.
    """
    file = path / STATE
    if not file.exists():
        found = ", ".join(sorted(one.name for one in path.iterdir())) or "nothing"
        raise InvalidTrial(f"{path} is not a checkpoint of a TFKerasTrial: expected {STATE} in it, found {found}")
    state = read_object(file)
    if state.get("format") != FORMAT:
        raise InvalidTrial(
            f"{path} has format {state.get('format')!r:.50}, but this det-keras reads format {FORMAT}; "
            f"upgrade: {package_command('upgrade', 'det-keras')}"
        )
    return state


def restore_variables(context: TFKerasTrialContext, state: Mapping[str, Any], path: Path) -> None:
    """Restore the variables that `write_checkpoint` wrote.

    Raises:
        InvalidTrial: the model, the optimizer or the aggregation differs.
    """
    _compare(state["weights"], context._model, path)
    _read(_everything(context), path)


def restore_model_weights(model: tf.keras.Model, state: Mapping[str, Any], path: Path) -> None:
    """Restore only the weights.

    Raises:
        InvalidTrial: the model differs.
    """
    _compare(state["weights"], model, path)
    _read(tf.train.Checkpoint(weights=list(model.weights)), path)


def restore_when_built(model: tf.keras.Model, path: Path) -> None:
    """Restore the weights of a model when they are created, since it has none before its first call."""
    tf.train.Checkpoint(model=model).read(str(path / VARIABLES)).expect_partial()


def _everything(context: TFKerasTrialContext) -> tf.train.Checkpoint:
    model = context._model
    # The list of weights is saved, too, so that models with different optimizers can be restored from it.
    parts = {"optimizer": model.optimizer, "aggregation": context.exchanges, "weights": list(model.weights)}
    return tf.train.Checkpoint(model=model, **parts)


def _read(parts: tf.train.Checkpoint, path: Path) -> None:
    try:
        parts.read(str(path / VARIABLES)).expect_partial().assert_existing_objects_matched()
    except (AssertionError, ValueError) as error:
        raise InvalidTrial(
            f"{path} does not fit the trial, whose model, optimizer or optimizations.aggregation_frequency changed; "
            f"undo the change, or start a new trial with the weights of the checkpoint: {error}"
        ) from error


def _compare(saved: Sequence[Any], model: tf.keras.Model, path: Path) -> None:
    """Check that the shapes agree. Names need not, because Keras numbers the layers of a process."""
    own = _shapes(model)
    if len(saved) != len(own):
        raise InvalidTrial(
            f"{path} has {len(saved)} weights, but the model has {len(own)}: {_names(saved)} / {_names(own)}"
        )
    for (name, shape), (own_name, own_shape) in zip(saved, own, strict=True):
        if shape != own_shape:
            raise InvalidTrial(
                f"{path} has the weight {name!r} with shape {shape}, but the model has {own_name!r} with shape "
                f"{own_shape} in its place; build the model that was saved"
            )


def _shapes(model: tf.keras.Model) -> list[Any]:
    return [[one.name, one.shape.as_list()] for one in model.weights]


def _names(shapes: Sequence[Any]) -> str:
    return ", ".join(name for name, _ in shapes) or "none"
