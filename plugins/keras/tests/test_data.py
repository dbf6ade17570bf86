"""Every kind of data is sharded, shuffled by (seed, epoch), and can start at any batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from det_keras import SequenceAdapter
from det_keras._data import training_source, validation_source
from det_keras._dataset_stream import DatasetStream

from det_core.errors import InvalidTrial

X = np.arange(20, dtype=np.float64)
Make = Callable[..., Any]


class Batches(tf.keras.utils.Sequence):  # type: ignore[misc]
    """Five batches of four records. Each epoch adds 100 to them, and each read adds noise to the targets."""

    def __init__(self) -> None:
        self.epoch = 0

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        records = X[index * 4 : index * 4 + 4] + 100 * self.epoch
        return records[:, None], records + np.random.rand()

    def on_epoch_end(self) -> None:
        self.epoch += 1


def function() -> Iterator[Any]:
    for start in range(0, 20, 4):
        yield X[start : start + 4, None], X[start : start + 4]


KINDS: dict[str, Callable[[Any], Any]] = {
    "dataset": lambda context: (
        context.wrap_dataset(tf.data.Dataset.from_tensor_slices((X[:, None], X))).shuffle(20, seed=1).batch(4)
    ),
    "unknown length": lambda context: (
        context.wrap_dataset(tf.data.Dataset.from_tensor_slices((X[:, None], X))).filter(lambda x, y: True).batch(4)
    ),
    "arrays": lambda context: (X[:, None], X),
    "sequence": lambda context: Batches(),
    "threads": lambda context: SequenceAdapter(Batches(), workers=2, max_queue_size=2),
    "function": lambda context: function,
}


def slot(rank: int, size: int) -> Any:
    return SimpleNamespace(rank=rank, size=size, local_rank=rank, local_size=size, allgather=lambda own: [own] * size)


def begin(make_context: Make, kind: str, **keys: Any) -> DatasetStream:
    context = make_context(**keys)
    return DatasetStream(training_source(KINDS[kind](context), context))


def read(stream: DatasetStream, number: int) -> list[list[float]]:
    return [stream.feed(next)[0].numpy().ravel().tolist() for _ in range(number)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.integration
def test_a_position_in_the_data_is_restored(make_context: Make, kind: str) -> None:
    stream = begin(make_context, kind)
    expected = read(stream, 13)
    assert sorted(chain(*expected[:5])) == list(range(20))
    for batch in (3, 5, 8):
        before, resumed = begin(make_context, kind), begin(make_context, kind)
        read(before, batch)
        resumed.load(before.state())
        assert read(resumed, 13 - batch) == expected[batch:]


@pytest.mark.parametrize("kind", ["arrays", "sequence", "function", "dataset"])
def test_slots_share_an_epoch(make_context: Make, kind: str) -> None:
    shares = [read(begin(make_context, kind, distributed=slot(rank, 2)), 2) for rank in range(2)]
    records = [record for share in shares for batch in share for record in batch]
    assert len(records) == len(set(records)) == (8 if kind == "arrays" else 16)


def test_batches_of_two_slots_together_equal_those_of_one(make_context: Make) -> None:
    whole = read(begin(make_context, "arrays"), 5)
    shares = [read(begin(make_context, "arrays", distributed=slot(rank, 2)), 5) for rank in range(2)]
    assert [sorted(a + b) for a, b in zip(*shares, strict=True)] == [sorted(batch) for batch in whole]


def test_arrays_are_shuffled_by_seed_and_epoch_unless_shuffle_is_off(make_context: Make) -> None:
    first, second = (lambda both: (both[:5], both[5:]))(read(begin(make_context, "arrays"), 10))
    assert first != second != sorted(second)
    assert read(begin(make_context, "arrays", seed=12), 5) != first
    context = make_context()
    context.configure_fit(shuffle=False)
    assert list(chain(*read(DatasetStream(training_source((X[:, None], X), context)), 5))) == list(range(20))


def test_random_numbers_of_a_sequence_are_functions_of_the_batch(make_context: Make) -> None:
    def targets(processes: bool) -> list[Any]:
        context = make_context()
        data = SequenceAdapter(Batches(), use_multiprocessing=processes, workers=2 if processes else 0)
        stream = DatasetStream(training_source(data, context))
        return [stream.feed(next)[1].numpy().tolist() for _ in range(4)]

    assert targets(False) == targets(True)


def test_class_weights_multiply_the_weights_of_records(make_context: Make) -> None:
    context = make_context()
    context.configure_fit(class_weight={0: 1.0, 1: 3.0}, shuffle=False)
    classes, weights = np.arange(4) % 2, np.array([1.0, 1.0, 2.0, 2.0])
    for targets in (classes, classes[:, None], np.eye(2)[classes]):
        source = training_source((X[:4, None], targets, weights), context)
        *_, found = next(iter(source.start(0)))
        assert found.numpy().tolist() == [1, 3, 2, 6]
    source = training_source((X[:4, None], classes), context)
    assert next(iter(source.start(0)))[2].numpy().tolist() == [1, 3, 1, 3]


def test_validation_uses_all_records_unless_validation_steps_is_set(make_context: Make) -> None:
    for kind, make in KINDS.items():
        parts = []
        for rank in range(2):
            context = make_context(distributed=slot(rank, 2))
            parts += [x.numpy().ravel().tolist() for x, _ in validation_source(make(context), context).start(0)]
        assert sorted(chain(*parts)) == list(range(20)), kind
    context = make_context()
    context.configure_fit(validation_steps=2)
    source = validation_source(KINDS["arrays"](context), context)
    assert source.batches == len(list(source.start(0))) == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda context: tf.data.Dataset.range(3).batch(1), r"dataset = self\.context\.wrap_dataset\(dataset\)"),
        (lambda context: context.wrap_dataset(tf.data.Dataset.range(3)).take(0), "without a batch"),
        (lambda context: (X, X[:3]), "lengths"),
        (lambda context: 3, "returned a int; expected a tf.data.Dataset"),
        (lambda context: list, "no batch"),
    ],
)
def test_errors_name_what_is_wrong_with_the_data(make_context: Make, data: Callable[[Any], Any], message: str) -> None:
    context = make_context()
    with pytest.raises(InvalidTrial, match=message):
        training_source(data(context), context)


def test_iterators_are_for_training_only_and_must_not_end(make_context: Make) -> None:
    context = make_context()
    with pytest.raises(InvalidTrial, match="return the function that makes it"):
        validation_source(function(), context)
    stream = DatasetStream(training_source(islice(function(), 3), context))
    assert read(stream, 3) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    with pytest.raises(InvalidTrial, match="ended after 3 batches"):
        stream.feed(next)


def test_endless_validation_data_is_an_error(make_context: Make) -> None:
    context = make_context()
    with pytest.raises(InvalidTrial, match=r"remove its repeat\(\)"):
        validation_source(KINDS["dataset"](context).repeat(), context)
