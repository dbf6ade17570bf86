"""Batches, and their order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("jax", reason="JAX is in an environment of its own, with which make test-jax runs these tests")

import numpy as np
from det_jax import Arrays
from det_jax._data import BatchSource, EpochStream

from det_core.errors import InvalidTrial


class Augmented:
    """Iterable of three batches, whose order and noise are drawn from Python's global generator."""

    def __iter__(self) -> Iterator[Any]:
        for number in random.sample(range(3), 3):
            yield number + random.random()


def take(stream: EpochStream, count: int) -> list[Any]:
    return [np.asarray(next(stream)).tolist() for _ in range(count)]


@pytest.mark.parametrize("loader", [Arrays(np.arange(7)), [*range(3)], Augmented()], ids=["arrays", "list", "iterable"])
def test_a_stream_continues_at_any_position(loader: Any) -> None:
    def make() -> EpochStream:
        return EpochStream(BatchSource(loader, "training", 2, seed=5), 5)

    expected = take(make(), 9)
    assert expected[:3] != expected[3:6] != expected[6:]
    for count in range(9):
        stream, resumed = make(), make()
        take(stream, count)
        state = random.getstate()
        resumed.load_state(stream.state())
        random.setstate(state)
        assert take(resumed, 9 - count) == expected[count:]


def test_arrays_are_shuffled_in_training_only() -> None:
    arrays = Arrays({"x": np.arange(7), "y": np.arange(7) * 2})
    training, validation = (BatchSource(arrays, "any", 3, seed) for seed in (5, None))
    assert (training.batches, validation.batches) == (2, 3)
    batches = [*training.read(epoch=1)]
    assert [batch["x"].shape for batch in batches] == [(3,), (3,)]
    assert all((batch["y"] == batch["x"] * 2).all() for batch in batches)
    assert len({record for batch in batches for record in batch["x"].tolist()}) == 6
    assert [batch["x"].tolist() for batch in validation.read()] == [[0, 1, 2], [3, 4, 5], [6]]


def test_an_iterable_learns_its_epoch() -> None:
    class Epochs:
        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[int]:
            return iter([self.epoch * 10, self.epoch * 10 + 1])

    assert take(EpochStream(BatchSource(Epochs(), "training", 2, seed=5), 5), 5) == [0, 1, 10, 11, 20]


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ((np.zeros(3), np.zeros(3)), "tuple; for arrays, return det_jax.Arrays"),
        ({"x": np.zeros(3)}, "dict; for arrays"),
        (iter([1]), "an iterator, which can be read only once"),
        ([], "data without a batch; expected at least one"),
        (Arrays(np.zeros(3)), "data without a batch; expected at least one of 4 records"),
        (None, "NoneType"),
    ],
)
def test_unsuitable_loaders_are_refused(loader: Any, message: str) -> None:
    with pytest.raises(InvalidTrial, match=r"build_training_data_loader\(\) returned " + message):
        BatchSource(loader, "training", 4, seed=5)


@pytest.mark.parametrize("arrays", [(np.zeros(3), np.zeros(4)), (), np.zeros(0), (np.zeros(3), 1)])
def test_arrays_have_one_number_of_records(arrays: Any) -> None:
    with pytest.raises(InvalidTrial, match="expected the same positive number in all"):
        Arrays(arrays)


def test_data_that_became_shorter_is_refused() -> None:
    stream = EpochStream(BatchSource(Augmented(), "training", 2, seed=5), 5)
    with pytest.raises(InvalidTrial, match="epoch 1 of the data has 3 batches; expected at least 5"):
        stream.load_state({"epoch": 1, "batch": 5})


def test_data_that_ends_is_refused() -> None:
    class Empty:
        def __iter__(self) -> Iterator[int]:
            return iter([])

    with pytest.raises(InvalidTrial, match="no batch in epoch 0"):
        next(EpochStream(BatchSource(Empty(), "training", 2, seed=5), 5))
