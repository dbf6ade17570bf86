"""The files of a checkpoint: variables as TensorFlow saves them, everything else as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from det_core.errors import InvalidTrial
from det_core.storage import read_object
from det_keras._context import TFKerasTrialContext

FORMAT = 1
VARIABLES = "keras"
"""``keras.index`` and ``keras.data-*``: the model, its optimizer, and gradients that wait to be applied."""
STATE = "keras.json"


def write(context: TFKerasTrialContext, state: Mapping[str, Any], path: Path) -> None:
    """Write everything."""
    model = context._model
    _everything(context).write(str(path / VARIABLES))
    text = json.dumps({"format": FORMAT, "weights": _shapes(model), **state})
    (path / STATE).write_text(text)


def read_state(path: Path) -> dict[str, Any]:
    """The JSON of a checkpoint.

    Raises:
        InvalidTrial: it has none, or a later release wrote it.
    """
    file = path / STATE
    if not file.exists():
        found = ", ".join(sorted(one.name for one in path.iterdir())) or "nothing"
        raise InvalidTrial(f"{path} is no checkpoint of a TFKerasTrial: expected {STATE} in it, and found {found}")
    state = read_object(file)
    if state.get("format") != FORMAT:
        raise InvalidTrial(
            f"{path} has format {state.get('format')!r:.50}, but this det-keras reads format {FORMAT}; "
            "pip install -U det-keras"
        )
    return state


def restore(context: TFKerasTrialContext, state: Mapping[str, Any], path: Path) -> None:
    """Put back what `write` wrote.

    Raises:
        InvalidTrial: the model, the optimizer or the aggregation is another one.
    """
    _compare(state["weights"], context._model, path)
    _read(_everything(context), path)


def restore_weights(model: tf.keras.Model, state: Mapping[str, Any], path: Path) -> None:
    """Only the weights. Raises as `restore`."""
    _compare(state["weights"], model, path)
    _read(tf.train.Checkpoint(weights=list(model.weights)), path)


def restore_when_built(model: tf.keras.Model, path: Path) -> None:
    """The weights of a model that does not have them yet."""
    tf.train.Checkpoint(model=model).read(str(path / VARIABLES)).expect_partial()


def _everything(context: TFKerasTrialContext) -> tf.train.Checkpoint:
    model = context._model
    # The weights once more, as a list: models whose optimizers differ share that.
    parts = {"optimizer": model.optimizer, "aggregation": context._exchanges, "weights": list(model.weights)}
    return tf.train.Checkpoint(model=model, **parts)


def _read(parts: tf.train.Checkpoint, path: Path) -> None:
    try:
        parts.read(str(path / VARIABLES)).expect_partial().assert_existing_objects_matched()
    except (AssertionError, ValueError) as error:
        raise InvalidTrial(
            f"{path} does not fit the trial, whose model, optimizer or optimizations.aggregation_frequency changed; "
            f"put them back, or start a new trial with its weights: {error}"
        ) from error


def _compare(saved: Sequence[Any], model: tf.keras.Model, path: Path) -> None:
    """Names of layers may be counted on in a process; shapes are what has to agree."""
    own = _shapes(model)
    if len(saved) != len(own):
        raise InvalidTrial(f"{path} has {len(saved)} weights and the model {len(own)}: {_names(saved)} / {_names(own)}")
    for (name, shape), (own_name, own_shape) in zip(saved, own, strict=True):
        if shape != own_shape:
            raise InvalidTrial(
                f"{path} has the weight {name!r} of shape {shape}, and the model {own_name!r} of {own_shape} there; "
                "build the model that was saved"
            )


def _shapes(model: tf.keras.Model) -> list[Any]:
    return [[one.name, one.shape.as_list()] for one in model.weights]


def _names(shapes: Sequence[Any]) -> str:
    return ", ".join(name for name, _ in shapes) or "none"
