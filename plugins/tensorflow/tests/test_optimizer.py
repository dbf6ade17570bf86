"""Optimizers that exchange and aggregate gradients, compared with ordinary ones on whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from det_tensorflow.backend import TensorFlowBackend
from det_tensorflow.optimizer import GradientExchange, uses_exchange

from det_core.errors import InvalidTrial

KINDS: dict[str, Callable[[float], Any]] = {
    "keras": lambda rate: tf.keras.optimizers.SGD(rate, momentum=0.9),
    "legacy": lambda rate: tf.keras.optimizers.legacy.SGD(rate, momentum=0.9),
    "v1": lambda rate: tf.compat.v1.train.MomentumOptimizer(rate, 0.9),
}
v1 = tf.compat.v1
RECORDS = np.random.default_rng(3).random((24, 3)).astype("float32")
EACH_MODE = pytest.mark.parametrize("function", [False, True], ids=["eager", "function"])
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


class Scaling(TensorFlowBackend):
    """Backend that makes gradients dense and multiplies them. It records its calls, including those during tracing."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.calls: list[Any] = []

    def average(self, gradients: Sequence[Any], *, name: str, fp16_compression: bool) -> list[Any]:
        self.calls.append((name, fp16_compression, len(gradients)))
        return [tf.convert_to_tensor(gradient) * self.factor for gradient in gradients]


class Model(tf.Module):  # type: ignore[misc]
    """Model with weights, a table of which each batch uses a few rows, and an unused variable."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(tf.ones([3, 2]))
        self.table = tf.Variable(tf.ones([5, 2]))
        self.unused = tf.Variable(1.0)
        self.all = [self.weights, self.table, self.unused]

    def gradients(self, records: Any) -> Any:
        with tf.GradientTape() as tape:
            rows = tf.nn.embedding_lookup(self.table, tf.cast(records[:, 0] * 5, tf.int32))
            loss = tf.reduce_mean((records @ self.weights - rows * 0.3) ** 2)
        return tape.gradient(loss, self.all)


def through(optimizer: Any, aggregation: int = 1, *, average: bool = True, backend: Any = None) -> GradientExchange:
    exchange = GradientExchange(
        backend or TensorFlowBackend(),
        "optimizer0",
        aggregation=aggregation,
        average_aggregated=average,
        fp16_compression=False,
    )
    assert exchange.through(optimizer) is optimizer
    return exchange


def train(optimizer: Any, size: int, *, model: Model | None = None, function: bool = True) -> Any:
    """Train on all records in batches of ``size``, and return the weights."""
    model = model or Model()

    def step(records: Any) -> None:
        optimizer.apply_gradients(zip(model.gradients(records), model.all, strict=True))

    run = tf.function(step) if function else step
    for start in range(0, len(RECORDS), size):
        run(tf.constant(RECORDS[start : start + size]))
    return [one.numpy() for one in model.all]


def trained(
    kind: str, size: int, aggregation: int = 1, *, rate: float = 0.1, factor: float = 1.0, **options: Any
) -> Any:
    optimizer = KINDS[kind](rate)
    through(optimizer, aggregation, backend=Scaling(factor))
    return train(optimizer, size, **options)


def assert_close(one: Any, other: Any) -> None:
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@EACH_KIND
def test_an_optimizer_on_one_slot_trains_as_without_exchange(kind: str) -> None:
    """Sparse gradients stay sparse. Rows without a gradient are handled as by the optimizer itself."""
    optimizer = KINDS[kind](0.1)
    through(optimizer)
    for mine, theirs in zip(train(optimizer, 6), train(KINDS[kind](0.1), 6), strict=True):
        assert mine.tobytes() == theirs.tobytes()


@EACH_KIND
@EACH_MODE
def test_applied_gradients_are_averaged_by_the_backend(kind: str, function: bool) -> None:
    assert_close(trained(kind, 6, factor=2.0, function=function), trained(kind, 6, rate=0.2, function=function))


@EACH_KIND
@EACH_MODE
def test_aggregated_batches_train_like_one_large_batch(kind: str, function: bool) -> None:
    assert_close(trained(kind, 2, 3, function=function), trained(kind, 6, function=function))


def test_the_sum_of_aggregated_gradients_may_be_applied_instead_of_the_mean() -> None:
    optimizer = KINDS["keras"](0.1)
    through(optimizer, 3, average=False)
    assert_close(train(optimizer, 2, function=False), trained("keras", 6, rate=0.3, function=False))


def test_batches_that_update_nothing_do_not_exchange() -> None:
    backend, optimizer = Scaling(1.0), KINDS["keras"](0.1)
    through(optimizer, 3, backend=backend)
    train(optimizer, 3, function=False)  # 8 batches
    assert backend.calls == [("optimizer0", False, 2)] * 2, "gradients that are None do not travel"
    assert int(optimizer.iterations) == 2


@EACH_KIND
def test_aggregated_gradients_are_in_checkpoints(kind: str, tmp_path: Path) -> None:
    def checkpoint() -> tuple[Any, Model, tf.train.Checkpoint]:
        optimizer, model = KINDS[kind](0.1), Model()
        exchange = through(optimizer, 5)
        return optimizer, model, tf.train.Checkpoint(optimizer=optimizer, model=model, exchanges=[exchange])

    optimizer, model, first = checkpoint()
    train(optimizer, 3, model=model, function=False)
    path = first.write(str(tmp_path / "c"))
    expected = train(optimizer, 3, model=model, function=False)

    optimizer, model, second = checkpoint()
    reading = second.read(path)
    resumed = train(optimizer, 3, model=model, function=False)
    reading.assert_consumed()
    assert [one.tobytes() for one in resumed] == [one.tobytes() for one in expected]


@EACH_KIND
@pytest.mark.parametrize("second", [[1], [1, 0], [0]], ids=["another", "another order", "fewer"])
def test_aggregation_needs_the_same_variables_each_time(kind: str, second: list[int]) -> None:
    """Otherwise sums of one group's gradients would be mixed with those of another group of the same shapes."""
    optimizer = KINDS[kind](0.1)
    through(optimizer, 2)
    first = [0] if second == [1] else [0, 1]
    variables = [tf.Variable(tf.ones([2]), name=name) for name in ("left", "right")]
    for _ in range(2):
        optimizer.apply_gradients([(tf.ones([2]), variables[place]) for place in first])
    said = rf"first left:0{', right:0' * (len(first) - 1)}, now .*wrap one optimizer per group of variables"
    with pytest.raises(InvalidTrial, match=said):
        optimizer.apply_gradients([(tf.ones([2]), variables[place]) for place in second])


@EACH_KIND
def test_an_optimizer_without_any_gradient_raises_its_own_error(kind: str) -> None:
    optimizer = KINDS[kind](0.1)
    through(optimizer)
    with pytest.raises(ValueError, match="No gradients provided"):
        optimizer.apply_gradients([(None, tf.Variable(1.0))])


def test_slots_share_aggregated_gradients_before_a_checkpoint() -> None:
    optimizer, backend = KINDS["keras"](0.1), Scaling(0.5)
    exchange = through(optimizer, 5, backend=backend)
    exchange.share()
    assert not backend.calls, "there is nothing yet"
    train(optimizer, 8, function=False)  # 3 batches
    before = [one.numpy() for one in exchange._sums]
    exchange.share()
    assert backend.calls == [("optimizer0", False, 2)]
    for mine, theirs in zip(exchange._sums, before, strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs * 0.5)
        assert theirs.any()


def test_a_wrapped_optimizer_keeps_its_class_and_config() -> None:
    optimizer = tf.keras.optimizers.Adam(0.25)
    before = optimizer.get_config()
    through(optimizer)
    assert isinstance(optimizer, tf.keras.optimizers.Adam)
    assert (type(optimizer).__name__, optimizer.get_config()) == ("Adam", before)
    restored = tf.keras.optimizers.deserialize(tf.keras.optimizers.serialize(optimizer))
    assert (type(restored), restored.get_config()) == (tf.keras.optimizers.Adam, before)


@pytest.mark.parametrize("wrong", ["adam", tf.keras.optimizers.Adam, None], ids=["name", "class", "none"])
def test_an_exchange_accepts_optimizers_only(wrong: Any) -> None:
    with pytest.raises(InvalidTrial, match=r"expected an object such as tf.keras.optimizers.Adam\(\)"):
        through(wrong)


def update(optimizer: Any, loss: Any, weights: Any) -> Any:
    """Return the operation that trains one batch, as a model function makes it for this kind of optimizer."""
    step = v1.train.get_or_create_global_step()
    if isinstance(optimizer, v1.train.Optimizer):
        return optimizer.minimize(loss, global_step=step)
    optimizer.iterations = step
    return optimizer.get_updates(loss, [weights])[0]


def train_in_session(make: Callable[[], Any], size: int, aggregation: int, *, resource: bool) -> Any:
    """Return the weights after training on all records, and the number of updates."""
    with tf.Graph().as_default(), v1.Session() as session:
        records = v1.placeholder(tf.float32, [None, 3])
        weights = v1.get_variable("w", [3, 2], initializer=v1.initializers.ones(), use_resource=resource)
        optimizer = make()
        exchange = through(optimizer, aggregation)
        operation = update(optimizer, tf.reduce_mean((records @ weights - 0.3) ** 2), weights)
        saved = {variable.op.name for variable in v1.global_variables()}
        assert sum("det_aggregation" in name for name in saved) == (2 if aggregation > 1 else 0)
        sharing = exchange.share()
        session.run(v1.global_variables_initializer())
        for start in range(0, len(RECORDS), size):
            session.run(operation, {records: RECORDS[start : start + size]})
            session.run(sharing)  # changes nothing on one slot
        return session.run([weights, v1.train.get_global_step()])


@pytest.fixture
def old_control_flow() -> Iterator[None]:
    """Use the control flow of Estimators, which variables without resources need."""
    v1.disable_control_flow_v2()
    yield
    v1.enable_control_flow_v2()


@pytest.mark.usefixtures("old_control_flow")
@pytest.mark.parametrize(
    ("make", "resource"),
    [
        (lambda: v1.train.MomentumOptimizer(0.1, 0.9), False),
        (lambda: v1.train.MomentumOptimizer(0.1, 0.9), True),
        (lambda: v1.train.AdamOptimizer(0.1), True),
        (lambda: tf.keras.optimizers.legacy.SGD(0.1, momentum=0.9), True),
    ],
    ids=["v1", "v1-resource", "adam", "legacy"],
)
def test_aggregated_batches_train_like_one_large_batch_in_a_session(make: Callable[[], Any], resource: bool) -> None:
    """Estimators train in graphs and sessions."""
    (expected, updates), (weights, same) = (train_in_session(make, *how, resource=resource) for how in ((6, 1), (2, 3)))
    np.testing.assert_allclose(weights, expected, rtol=1e-5)
    assert updates == same == 4


@pytest.mark.parametrize("kind", ["keras", "legacy"])
def test_gradients_are_exchanged_before_they_are_checked_for_finiteness(kind: str) -> None:
    inner, weight = KINDS[kind](1.0), tf.Variable(0.0)
    backend = Scaling(float("inf"))
    exchange = through(inner, backend=backend)
    outer = tf.keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=8)
    pair = outer.get_unscaled_gradients([outer.get_scaled_loss(tf.constant(-1.0))])[0], weight
    with pytest.raises(InvalidTrial, match=r"such as a LossScaleOptimizer.*wrap_optimizer\(tf\.keras\.mixed_precision"):
        outer.apply_gradients([pair])
    assert [uses_exchange(outer), uses_exchange(inner), outer._det_exchange] == [True, False, exchange]
    outer.apply_gradients([pair])
    assert (float(weight), float(outer.loss_scale)) == (0.0, 4.0)
    backend.factor = 2.0
    outer.apply_gradients([pair])
    assert (float(weight), float(outer.loss_scale)) == (2.0, 4.0)
