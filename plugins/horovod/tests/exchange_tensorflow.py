"""Check on two slots how the adapter handles gradients and variables, eagerly, in functions and in sessions."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf
from det_horovod._tensorflow import HorovodTensorFlow
from det_tensorflow.optimizer import GradientExchange, uses_exchange

from det_core.config import NoOptions, parse_config
from det_core.errors import InvalidTrial, PeerLost
from det_core.launch import backends

v1 = tf.compat.v1
Mode = Callable[[Callable[[], Any]], Callable[[], Any]]
CONFIG = {
    "entrypoint": "m:T",
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
    "optimizations": {"tensor_fusion_threshold": 1},
}
TAKEN = SimpleNamespace(get_experiment_config=parse_config(CONFIG).dump, distributed=backends.connect_workers())
RANK = TAKEN.distributed.rank
FINE = 1 + 2.0**-12
"""A number that float16 cannot represent."""
LARGE = 200_000
"""Size of a gradient, of which two exceed the limit of a group."""
MADE = [((), "float32"), ((LARGE,), "float32"), ((2, 1), "float64"), ((LARGE,), "float32"), ((), "float16")]


def eagerly(run: Callable[[], Any]) -> Callable[[], Any]:
    return run


def in_a_session(run: Callable[[], Any]) -> Callable[[], Any]:
    def called() -> Any:
        with tf.Graph().as_default(), v1.Session() as session:
            chiefs_own_operations()
            return session.run(run())

    return called


def chiefs_own_operations() -> None:
    """Add operations on the chief only, which change TensorFlow's names of later operations."""
    if RANK == 0:
        tf.cond(v1.placeholder_with_default(True, []), lambda: tf.ones([]), lambda: tf.zeros([]))


def once() -> tf.Tensor:
    """Return 1 in a form that graph optimization cannot fold or merge with another."""
    return tf.random.uniform([], 1.0, 1.0)


def average(*gradients: Any, name: str = "optimizer0", fp16: bool = False) -> list[Any]:
    means = HorovodTensorFlow(TAKEN, NoOptions()).average(gradients, name=name, fp16_compression=fp16)
    assert [type(mean).__name__ for mean in means] == [type(gradient).__name__ for gradient in gradients]
    return [tf.convert_to_tensor(mean) for mean in means]


def slices(*rows: int, value: float = 1.0) -> tf.IndexedSlices:
    """Return the sparse gradient of a batch, whose size and content are unknown before the graph runs."""
    size = len(rows) * tf.cast(once(), tf.int32)
    indices = tf.gather(tf.constant([*rows, 0], tf.int64), tf.range(size))
    return tf.IndexedSlices(tf.fill([size, 2], value), indices, tf.constant([4, 2], tf.int64))


def gradients_are_averaged(mode: Mode) -> None:
    def run() -> Any:
        one = once() + RANK
        return average(*(tf.fill(shape, tf.cast(one + place, kind)) for place, (shape, kind) in enumerate(MADE)))

    for place, (mean, made) in enumerate(zip(map(np.asarray, mode(run)()), MADE, strict=True)):
        assert (mean.shape, mean.dtype.name) == made
        assert (mean == place + 1.5).all()


def sparse_gradients_are_gathered(mode: Mode) -> None:
    def run() -> Any:
        return average(slices(1, *[2] * RANK), once() * [RANK, RANK], slices(*[0, 0] * RANK))

    first, dense, last = map(np.asarray, mode(run)())
    assert first[:, 0].tolist() == [0, 1, 0.5, 0]
    assert dense.tolist() == [0.5, 0.5]
    assert last[:, 1].tolist() == [1, 0, 0, 0], "one slot has no rows"


def gradients_are_sent_as_float16_only_with_compression(mode: Mode) -> None:
    def run() -> Any:
        own = FINE * once(), slices(0, value=FINE)
        return [*average(*own, name="fine"), *average(*own, name="rounded", fp16=True)]

    fine, fine_rows, rounded, rounded_rows = map(np.asarray, mode(run)())
    assert (fine, fine_rows[0, 0], rounded, rounded_rows[0, 0]) == (FINE, FINE, 1, 1)


def bfloat16_needs_compression(mode: Mode) -> None:
    def run(*, fp16: bool = True) -> Any:
        return average(tf.fill([2], tf.cast(once() * RANK, tf.bfloat16)), fp16=fp16)

    with pytest.raises(InvalidTrial, match=r"shape \(2,\) is bfloat16.*gradient_compression: true"):
        mode(lambda: run(fp16=False))()
    (mean,) = map(np.asarray, mode(run)())
    assert (mean.dtype.name, float(mean[0])) == ("bfloat16", 0.5)


def wrapped(place: int, optimizer: Any, aggregation: int = 2) -> Any:
    settings = {"aggregation": aggregation, "average_aggregated": True, "fp16_compression": False}
    return GradientExchange(HorovodTensorFlow(TAKEN, NoOptions()), f"optimizer{place}", **settings).through(optimizer)


def step(optimizers: list[Any], weights: list[Any]) -> list[Any]:
    """Train a batch with all optimizers. Every second batch is exchanged, in a branch of each optimizer."""
    gradients = [once() * (-1 - RANK), once() * (-2 - 2 * RANK)]
    return [optimizer.apply_gradients([pair]) for optimizer, *pair in zip(optimizers, gradients, weights, strict=True)]


def optimizers_exchange_in_branches_of_a_function() -> None:
    weights = [tf.Variable(0.0), tf.Variable(0.0)]
    optimizers = [wrapped(place, tf.keras.optimizers.SGD(1.0)) for place in range(2)]
    run = tf.function(lambda: step(optimizers, weights))
    for expected in ([0, 0], [1.5, 3], [1.5, 3], [3, 6]):
        run()
        assert [float(weight) for weight in weights] == expected


def optimizers_exchange_in_branches_of_a_session() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        chiefs_own_operations()
        weights = [v1.Variable(0.0), v1.Variable(0.0)]
        steps = step([wrapped(place, v1.train.GradientDescentOptimizer(1.0)) for place in range(2)], weights)
        session.run(v1.global_variables_initializer())
        for expected in ([0, 0], [1.5, 3], [1.5, 3], [3, 6]):
            session.run(steps)
            assert session.run(weights) == expected


def slots_agree_whether_gradients_are_finite(kind: Any, aggregation: int) -> None:
    """Gradients of one slot are infinite in every second batch."""
    weight = tf.Variable(0.0)
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(wrapped(0, kind(1.0), aggregation), initial_scale=8)
    assert uses_exchange(optimizer)

    @tf.function
    def run(gradient: Any) -> None:
        optimizer.apply_gradients([(gradient * (RANK + 1), weight)])

    for batch in range(4 * aggregation):
        spoilt = RANK == 1 and batch // aggregation % 2 == 0
        run(tf.constant(float("inf") if spoilt else -1.0))
    assert (float(weight), float(optimizer.loss_scale)) == (3.0, 2.0)


def variables_become_those_of_the_chief() -> None:
    kinds = [tf.float32, tf.bfloat16, tf.complex64, tf.int64, tf.bool, tf.uint32]
    expected = [np.full([2, 3], 1, kind.as_numpy_dtype) for kind in kinds]
    first = [tf.cast(tf.fill([2, 3], 1 - RANK), kind) for kind in kinds]
    adapter = HorovodTensorFlow(TAKEN, NoOptions())
    variables = [*map(tf.Variable, first), tf.Variable(tf.zeros([0, 2])), tf.Variable(float(RANK))]
    adapter.broadcast(variables)
    assert all((one.numpy() == wanted).all() for one, wanted in zip(variables, [*expected, 0, 0], strict=True))
    with tf.Graph().as_default(), v1.Session() as session:
        chiefs_own_operations()
        variables = [v1.Variable(float(RANK), use_resource=resource) for resource in (False, True)]
        sharing = adapter.broadcast(variables)
        session.run(v1.global_variables_initializer())
        session.run(sharing)
        assert session.run(variables) == [0, 0]


def fails() -> None:
    raise RuntimeError("an error of another kind")


def a_slot_that_exits_is_an_error_on_the_others(first: HorovodTensorFlow) -> None:
    if RANK == 0:
        with pytest.raises(PeerLost, match="shut down"), first.training():
            in_a_session(lambda: average(once()))()
        with pytest.raises(PeerLost, match="shut down"), first.training():
            tf.function(lambda: average(once()))()
    with pytest.raises(tf.errors.UnknownError, match="of another kind"), first.training():
        tf.function(lambda: tf.numpy_function(fails, [], tf.float32))()
    first.close()
    assert not hvd.is_initialized()


if __name__ == "__main__":
    first = HorovodTensorFlow(TAKEN, NoOptions())
    assert os.environ["HOROVOD_FUSION_THRESHOLD"] == str(1 << 20)
    for mode in (eagerly, tf.function, in_a_session):
        gradients_are_averaged(mode)
        sparse_gradients_are_gathered(mode)
        gradients_are_sent_as_float16_only_with_compression(mode)
        bfloat16_needs_compression(mode)
    optimizers_exchange_in_branches_of_a_function()
    optimizers_exchange_in_branches_of_a_session()
    for kind in (tf.keras.optimizers.SGD, tf.keras.optimizers.legacy.SGD):
        for aggregation in (1, 2):
            slots_agree_whether_gradients_are_finite(kind, aggregation)
    variables_become_those_of_the_chief()
    v1.disable_control_flow_v2()  # as Estimators do
    optimizers_exchange_in_branches_of_a_session()
    a_slot_that_exits_is_an_error_on_the_others(first)
    print(f"rank {RANK} passed")
