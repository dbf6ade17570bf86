"""Training data of a trial that continues on other numbers of slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import pytest
import torch
from det_torch import DataLoader, samplers
from det_torch._data import TrainingStream, UnmanagedStream, check_resizable, training_data
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler, TensorDataset

from det_core.errors import InvalidTrial

GLOBAL_BATCH = 8


def stream_of(records: int, size: int, rank: int = 0, **options: Any) -> TrainingStream:
    loader = DataLoader(TensorDataset(torch.arange(records)), GLOBAL_BATCH // size, shuffle=True, **options)
    return training_data(loader, rank=rank, size=size, seed=7)


def train(records: int, runs: list[tuple[int, int]], **options: Any) -> list[list[int]]:
    """Return the records of each step of a trial that trains on some slots for some steps, then on others."""
    steps: list[list[int]] = []
    position: Mapping[str, int] | None = None
    for size, count in runs:
        streams = [stream_of(records, size, rank, **options) for rank in range(size)]
        ranks = [islice(stream.start(len(steps), None, position), count) for stream in streams]
        steps += [[int(record) for (batch,) in step for record in batch] for step in zip(*ranks, strict=True)]
        positions = [stream.layout.position() for stream in streams if stream.layout]
        assert all(one == positions[0] for one in positions), "the chief saves the position of all"
        position = positions[0]
    return steps


CHANGES = [(4, 3), (2, 4), (2, 1), (4, 2), (1, 7), (8, 3), (4, 4)]


@pytest.mark.parametrize("options", [{}, {"drop_last": True}])
def test_steps_have_the_same_records_on_any_number_of_slots(options: dict[str, bool]) -> None:
    assert train(5 * GLOBAL_BATCH, CHANGES, **options) == train(5 * GLOBAL_BATCH, [(4, 24)], **options)


@pytest.mark.parametrize("records", [37, 41, 5, 8, 1])
def test_each_record_is_trained_once_per_epoch(records: int) -> None:
    """Also if an epoch ends within a step."""
    trained = [record for step in train(records, CHANGES) for record in step]
    epochs, rest = divmod(len(trained), records)
    counts = Counter(trained)
    assert {counts[record] for record in range(records)} <= ({epochs, epochs + 1} if rest else {epochs})
    for epoch in range(epochs):
        assert sorted(trained[epoch * records : (epoch + 1) * records]) == list(range(records))


def test_an_interruption_without_a_change_continues_as_before() -> None:
    assert train(37, [(4, 3), (2, 2), (2, 5)]) == train(37, [(4, 3), (2, 7)])


def loader_of(**options: Any) -> Any:
    return DataLoader(TensorDataset(torch.arange(37)), **options)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(37))


ONLY_ONE_SIZE: dict[str, tuple[Callable[[], Any], str]] = {
    "another batch size": (lambda: loader_of(batch_size=8), "has batch_size 8; expected .*, which is 4"),
    "drop_last": (lambda: loader_of(batch_size=4, drop_last=True), "37 records are not a multiple of .* 8"),
    "a stream": (lambda: DataLoader(Stream(), 4), "must have a dataset with __getitem__"),
    "no batches": (lambda: loader_of(batch_size=None), "a batch_size"),
    "own batches": (
        lambda: loader_of(
            batch_sampler=samplers.RepeatBatchSampler(BatchSampler(SequentialSampler(range(37)), 4, drop_last=False))
        ),
        "a batch_size",
    ),
    "own shares": (
        lambda: loader_of(batch_size=4, sampler=samplers.DistributedSampler(SequentialSampler(range(37)), 2, 0)),
        "no sampler that divides records among slots",
    ),
}


@pytest.mark.parametrize("case", ONLY_ONE_SIZE)
def test_data_that_depends_on_the_number_of_slots_is_refused(case: str) -> None:
    make, message = ONLY_ONE_SIZE[case]
    with pytest.raises(InvalidTrial, match=message):
        check_resizable(training_data(make(), rank=0, size=2, seed=7), batch_size=4, size=2)


def test_unmanaged_data_is_refused() -> None:
    with pytest.raises(InvalidTrial, match="is elastic"):
        check_resizable(UnmanagedStream(loader_of(batch_size=4)), batch_size=4, size=2)


def test_data_for_any_number_of_slots_is_accepted() -> None:
    check_resizable(stream_of(37, 2), batch_size=4, size=2)
    check_resizable(stream_of(40, 2, drop_last=True), batch_size=4, size=2)
