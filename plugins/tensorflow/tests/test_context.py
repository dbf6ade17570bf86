"""Trial context shared by all frameworks for TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from det_tensorflow.backend import TensorFlowBackend, make_tensorflow_backend
from det_tensorflow.context import TensorFlowExperimentalContext, TensorFlowTrialContext

from det_core.config import parse_config
from det_core.core import single_process
from det_core.errors import InvalidTrial

CONFIG: dict[str, Any] = {
    "entrypoint": "model_def:Trial",
    "hyperparameters": {"global_batch_size": 4},
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
}


class Noting(TensorFlowBackend):
    """Backend that records its calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def average(self, gradients: Sequence[Any], *, name: str, fp16_compression: bool) -> list[Any]:
        self.calls.append((name, fp16_compression, [float(one) for one in gradients]))
        return list(gradients)


def context(*, slots: Any = None, **optimizations: Any) -> TensorFlowTrialContext:
    return TensorFlowTrialContext(
        config=parse_config({**CONFIG, "optimizations": optimizations}),
        hparams={},
        trial_id=0,
        experiment_id=0,
        trial_seed=0,
        distributed=slots or single_process(),
    )


def test_optimizers_do_what_the_config_asks() -> None:
    made = context(aggregation_frequency=2, average_aggregated_gradients=False, gradient_compression=True)
    made.backend = backend = Noting()
    optimizers = [made.wrap_optimizer(tf.keras.optimizers.SGD(1.0)) for _ in range(2)]
    weight = tf.Variable(0.0)
    for _ in range(2):
        for optimizer in optimizers:
            optimizer.apply_gradients([(tf.constant(1.5), weight)])
    assert backend.calls == [("optimizer0", True, [3.0]), ("optimizer1", True, [3.0])]
    assert float(weight) == -6.0


def test_aggregated_gradients_are_shared_before_a_checkpoint() -> None:
    made = context(aggregation_frequency=2, gradient_compression=True)
    made.backend = backend = Noting()
    made.wrap_optimizer(tf.keras.optimizers.SGD(1.0)).apply_gradients([(tf.constant(1.5), tf.Variable(0.0))])
    made.share_aggregated()
    assert backend.calls == [("optimizer0", True, [1.5])]


@pytest.mark.parametrize(
    ("rank", "shard", "expected"), [(0, True, [0, 2, 4]), (1, True, [1, 3]), (1, False, [0, 1, 2, 3, 4])]
)
def test_each_slot_has_its_share_of_the_records(rank: int, shard: bool, expected: list[int]) -> None:
    made = context(slots=SimpleNamespace(rank=rank, size=2))
    dataset = made.shard_dataset(tf.data.Dataset.range(5), shard)
    assert list(dataset.as_numpy_iterator()) == expected
    assert made.datasets == [dataset]


def test_wrap_dataset_accepts_datasets_only() -> None:
    with pytest.raises(InvalidTrial, match=r"wrap_dataset\(\) got a list; expected a tf.data.Dataset"):
        context().shard_dataset([1], True)


def test_one_process_needs_no_backend() -> None:
    backend = make_tensorflow_backend("keras", context())
    weights = [tf.Variable(1.0)]
    assert backend.average([tf.constant(2.0)], name="optimizer0", fp16_compression=True) == [2.0]
    assert backend.broadcast(weights) is None
    with backend.training():
        pass
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(backend.broadcast([]))


def test_a_context_without_training_has_no_tensorboard_directory() -> None:
    with pytest.raises(InvalidTrial, match="train with det run"):
        TensorFlowTrialContext.from_config(CONFIG).get_tensorboard_path()


@pytest.mark.parametrize("rank", [0, 1])
def test_datasets_of_the_data_layer_are_sharded_and_shuffled(rank: int) -> None:
    made = context(slots=SimpleNamespace(rank=rank, size=2))
    own = list(range(rank, 40, 2))

    def epochs(decorate: Any) -> list[list[int]]:
        dataset = decorate(lambda count: tf.data.Dataset.range(count))(40)
        return [list(dataset.as_numpy_iterator()) for _ in range(2)]

    experimental = TensorFlowExperimentalContext(made)
    train, validate = experimental.cache_train_dataset, experimental.cache_validation_dataset
    assert epochs(train("digits", "v1")) == epochs(validate("digits", "v1")) == [own, own]
    first, second = epochs(train("digits", "v1", shuffle=True))
    assert first != second
    assert sorted(first) == sorted(second) == own
    first, second = epochs(train("digits", "v1", shuffle=True, skip_shuffle_at_epoch_end=True))
    assert first == second != own
    assert epochs(validate("digits", "v1", shuffle=True)) == [first, first]
