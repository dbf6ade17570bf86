"""Random numbers of a graph are functions of the batch number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from det_estimator._stateless_random import make_stateless

v1 = tf.compat.v1
MANY = 4000

DRAWS: dict[str, tuple[Callable[[], Any], float]] = {
    "RandomUniform": (lambda: tf.random.uniform([MANY], 2, 4), 3),
    "RandomStandardNormal": (lambda: tf.random.normal([MANY], 1), 1),
    "TruncatedNormal": (lambda: tf.random.truncated_normal([MANY], 1), 1),
    "RandomUniformInt": (lambda: tf.random.uniform([MANY], 0, 5, tf.int32), 2),
    "RandomShuffle": (lambda: tf.random.shuffle(tf.range(MANY))[: MANY // 2], MANY / 2),
    "Multinomial": (lambda: tf.random.categorical(tf.math.log([[0.5, 0.0, 0.5]]), MANY), 1),
    "RandomGamma": (lambda: tf.random.gamma([MANY], tf.constant(3.0)), 3),
    "RandomPoissonV2": (lambda: tf.random.poisson([MANY], tf.constant(4.0)), 4),
}
"""Type of the operation -> function that draws with it, and the mean of its distribution."""


@pytest.mark.parametrize("kind", DRAWS)
def test_a_draw_depends_only_on_the_batch_and_the_seed(kind: str) -> None:
    make, mean = DRAWS[kind]

    def draws(seed: int) -> dict[int, Any]:
        with tf.Graph().as_default() as graph:
            v1.set_random_seed(3)
            batch = v1.placeholder_with_default(np.int64(0), ())
            before = make()
            assert kind in {op.type for op in graph.get_operations()}
            drawn = tf.identity(before)
            assert make_stateless([drawn.op], batch, seed) == []
            with v1.Session() as session:
                return {number: session.run(drawn, {batch: number}) for number in (0, 1, 7)}

    first, again, other = draws(1), draws(1), draws(2)
    assert np.mean(first[0]) == pytest.approx(mean, rel=0.1)
    assert all(np.array_equal(first[number], again[number]) for number in first)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], other[0])


def test_random_initial_values_are_not_replaced(graph: Any) -> None:
    variable = v1.get_variable("v", initializer=tf.random.normal([3]))
    (random,) = (op for op in graph.get_operations() if op.type == "RandomStandardNormal")
    consumers = random.outputs[0].consumers()
    make_stateless([tf.identity(variable).op], tf.constant(0, tf.int64), 1)
    assert random.outputs[0].consumers() == consumers


def test_operations_that_cannot_be_replaced_are_named(graph: Any) -> None:
    loop = tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x + tf.random.normal([])), (0, 0.0))[1]
    function = tf.function(lambda: tf.random.uniform([]), autograph=False)()
    kept = make_stateless([loop.op, function.op], tf.constant(0, tf.int64), 1)
    assert len(kept) == 2
    assert any("while" in name for name in kept)
