"""Random operations of a training graph as functions of the batch number, without state for checkpoints to save."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import tensorflow as tf

from det_core.trial.random_generators import derive_seed

Operation: TypeAlias = Any


def _shape_of_samples(op: Operation) -> Any:
    shape, parameter = op.inputs
    return tf.concat([shape, tf.shape(parameter, out_type=shape.dtype)], 0)


def _dtype(op: Operation) -> Any:
    return op.outputs[0].dtype


def _of_shape(stateless: Callable[..., Any]) -> Callable[[Operation, Any], Any]:
    """Return a replacement for a distribution without parameters, which is one operation, unlike in ``tf.random``."""
    return lambda op, seed: stateless(shape=op.inputs[0], seed=seed, dtype=_dtype(op))


_STATELESS: dict[str, Callable[[Operation, Any], Any]] = {
    "RandomUniform": _of_shape(tf.raw_ops.StatelessRandomUniform),
    "RandomStandardNormal": _of_shape(tf.raw_ops.StatelessRandomNormal),
    "TruncatedNormal": _of_shape(tf.raw_ops.StatelessTruncatedNormal),
    "RandomUniformInt": lambda op, seed: tf.random.stateless_uniform(
        op.inputs[0], seed, op.inputs[1], op.inputs[2], dtype=_dtype(op)
    ),
    "RandomShuffle": lambda op, seed: tf.random.experimental.stateless_shuffle(op.inputs[0], seed),
    "Multinomial": lambda op, seed: tf.random.stateless_categorical(*op.inputs, seed, dtype=_dtype(op)),
    "RandomGamma": lambda op, seed: tf.random.stateless_gamma(
        _shape_of_samples(op), seed, op.inputs[1], dtype=_dtype(op)
    ),
    "RandomPoissonV2": lambda op, seed: tf.random.stateless_poisson(
        _shape_of_samples(op), seed, op.inputs[1], dtype=_dtype(op)
    ),
}
"""Type of a random operation -> function that makes its stateless replacement for a seed of two numbers."""


def make_stateless(ends: Iterable[Operation], batch: Any, seed: int) -> list[str]:
    """Replace the random operations that some operations of the default graph depend on. The graph has no session yet.

    Args:
        ends: the operations that each batch runs.
        batch: the number of the batch, an int64 tensor.
        seed: the seed of this slot's training.

    Returns:
        The names of random operations that cannot be replaced, such as those in loops and functions.
    """
    kept = []
    for op in sorted(_leading_to(ends), key=lambda op: str(op.name)):
        if _has_random_function(op):
            kept.append(op.name)
        elif _is_random(op.op_def):
            if op.type in _STATELESS and op._get_control_flow_context() is None:
                _replace(op, batch, derive_seed(seed, op.name))
            else:
                kept.append(op.name)
    return kept


def _replace(op: Operation, batch: Any, seed: int) -> None:
    (old,) = op.outputs
    consumers = list(old.consumers())
    with tf.device(op.device):
        new = _STATELESS[op.type](op, tf.stack([tf.constant(seed, tf.int64), batch]))
    for consumer in consumers:
        for index, tensor in enumerate(consumer.inputs):
            if tensor is old:
                consumer._update_input(index, new)


def _leading_to(ends: Iterable[Operation]) -> set[Operation]:
    """Return operations and all their dependencies, which do not include the initializers of variables."""
    seen: set[Operation] = set()
    waiting = list(ends)
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            waiting += [tensor.op for tensor in op.inputs]
            waiting += op.control_inputs
    return seen


def _is_random(definition: Any) -> bool:
    return bool(definition.is_stateful and {"seed", "seed2"} <= {attribute.name for attribute in definition.attr})


def _has_random_function(op: Operation) -> bool:
    return any(_is_random(node.op_def) for graph in _function_graphs(op) for node in graph.get_operations())


def _function_graphs(op: Operation) -> Iterator[Any]:
    """Yield the bodies of the functions that an operation calls, directly or indirectly."""
    for attribute in op.op_def.attr:
        if attribute.type == "func":
            function = op.graph._get_function(op.get_attr(attribute.name).name)
            graph = getattr(function, "graph", None)  # functions imported from a file may have none
            if graph is not None:
                yield graph
                for inner in graph.get_operations():
                    yield from _function_graphs(inner)
