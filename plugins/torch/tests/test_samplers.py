"""Each sampler does what its definition says, alone and in a loader that det reads."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from det_torch import samplers
from det_torch._data import training_data
from det_torch.samplers import (
    DistributedBatchSampler,
    DistributedSampler,
    RepeatBatchSampler,
    RepeatSampler,
    ReproducibleShuffleBatchSampler,
    ReproducibleShuffleSampler,
    SkipBatchSampler,
    SkipSampler,
    adapt_batch_sampler,
)
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

N = 10
BATCHES = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


def numbers() -> SequentialSampler:
    return SequentialSampler(range(N))


def batches() -> BatchSampler:
    return BatchSampler(numbers(), 3, drop_last=False)


def batches_of(sampler: Any, count: int, **place: int) -> list[Any]:
    """Return the batches that det reads through a loader with this batch sampler."""
    stream = training_data(
        DataLoader(range(N), batch_sampler=sampler, collate_fn=list),  # type: ignore[arg-type]
        seed=5,
        **{"rank": 0, "size": 1, **place},
    )
    read = list(islice(stream.start(0, None), count))
    stream.close()
    return read


def test_all_samplers_are_public_names() -> None:
    kinds = ("Repeat", "Distributed", "Skip", "ReproducibleShuffle")
    both = [f"{kind}{over}Sampler" for kind in kinds for over in ("", "Batch")]
    assert sorted(samplers.__all__) == sorted([*both, "adapt_batch_sampler"])


def test_adapt_batch_sampler_repeats_distributes_and_skips() -> None:
    assert list(adapt_batch_sampler(batches())) == BATCHES
    share = adapt_batch_sampler(batches(), repeat=True, skip=1, num_replicas=2, rank=1)
    assert list(islice(share, 5)) == [(BATCHES * 4)[index] for index in range(3, 13, 2)]


@pytest.mark.parametrize(
    ("sampler", "items"),
    [(RepeatSampler(numbers()), list(range(N))), (RepeatBatchSampler(batch_sampler=batches()), BATCHES)],
)
def test_a_repeated_sampler_starts_over(sampler: Any, items: list[Any]) -> None:
    assert len(sampler) == len(items)
    assert list(islice(sampler, 2 * len(items) + 1)) == [*items, *items, items[0]]


def test_repeating_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="list yields nothing"):
        next(iter(RepeatSampler([])))


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_shares_are_disjoint_and_complete(workers: int) -> None:
    shares = [DistributedSampler(numbers(), num_workers=workers, rank=rank) for rank in range(workers)]
    assert [list(share) for share in shares] == [list(range(rank, N, workers)) for rank in range(workers)]
    assert [len(share) for share in shares] == [len(list(share)) for share in shares]
    of_batches = [DistributedBatchSampler(batches(), num_workers=workers, rank=rank) for rank in range(workers)]
    assert [list(share) for share in of_batches] == [BATCHES[rank::workers] for rank in range(workers)]


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_out_of_range_is_an_error(rank: int) -> None:
    with pytest.raises(ValueError, match=f"rank is {rank}; expected 0 <= rank < num_workers, which is 2"):
        DistributedSampler(numbers(), 2, rank)


def test_a_skip_sampler_leaves_out_the_first_items() -> None:
    assert list(SkipSampler(numbers(), 7)) == [7, 8, 9]
    assert list(SkipBatchSampler(batch_sampler=batches(), skip=3)) == [[9]]
    assert len(SkipSampler(numbers(), 7)) == N  # epochs keep their length
    assert list(islice(SkipSampler(RepeatSampler(numbers()), N + 8), 4)) == [8, 9, 0, 1]
    with pytest.raises(ValueError, match="skip is -1"):
        SkipSampler(numbers(), -1)


@pytest.mark.parametrize(
    ("kind", "under", "items"),
    [(ReproducibleShuffleSampler, numbers, list(range(N))), (ReproducibleShuffleBatchSampler, batches, BATCHES)],
)
def test_shuffle_depends_on_seed_and_epoch(kind: Any, under: Any, items: list[Any]) -> None:
    one, same, other = kind(under(), seed=3), kind(under(), 3), kind(under(), 4)
    epochs = [list(one) for _ in range(3)]
    assert all(sorted(epoch) == items for epoch in epochs)
    assert epochs[0] != epochs[1]
    torch.manual_seed(1)
    assert [list(same) for _ in range(3)] == epochs
    for epoch in (1, 0, 2):
        same.set_epoch(epoch)
        assert list(same) == epochs[epoch]
    assert [list(other) for _ in range(3)] != epochs
    assert len(one) == len(items)


@pytest.mark.parametrize(
    ("kind", "items"), [(ReproducibleShuffleSampler, range(N)), (ReproducibleShuffleBatchSampler, BATCHES)]
)
def test_shuffle_has_the_order_of_one_numpy_generator(kind: Any, items: Any) -> None:
    sampler, random = kind(items, 3), np.random.RandomState(3)
    for _ in range(3):
        expected = list(items)
        random.shuffle(expected)
        assert list(sampler) == expected


def test_det_reads_a_repeated_loader_as_it_reads_the_loader() -> None:
    shuffled = batches_of(ReproducibleShuffleBatchSampler(batches(), 3), 12)
    assert batches_of(RepeatBatchSampler(ReproducibleShuffleBatchSampler(batches(), 3)), 12) == shuffled
    assert [sorted(shuffled[begin : begin + 4]) for begin in (0, 4, 8)] == [BATCHES] * 3
    assert shuffled[:4] != shuffled[4:8]


def test_det_does_not_distribute_batches_that_a_sampler_distributes() -> None:
    def sampler(rank: int) -> Any:
        random = BatchSampler(RandomSampler(range(N), generator=torch.Generator()), 1, drop_last=False)
        return DistributedBatchSampler(random, 2, rank)

    epochs = [batches_of(sampler(rank), 10, rank=rank, size=2) for rank in range(2)]
    for begin in (0, 5):
        together = [batch for epoch in epochs for batch in epoch[begin : begin + 5]]
        assert sorted(together) == [[number] for number in range(N)]
    assert epochs[0][:5] != epochs[0][5:]


def test_torchs_distributed_sampler_is_recognized() -> None:
    def share(rank: int) -> list[Any]:
        sampler = torch.utils.data.DistributedSampler(range(N), 2, rank, seed=1)  # type: ignore[arg-type]
        stream = training_data(DataLoader(range(N), 1, sampler=sampler), rank=rank, size=2, seed=5)  # type: ignore[arg-type]
        assert stream.batches_per_epoch == 5
        return [batch.item() for batch in islice(stream.start(0, None), 10)]

    shares = [share(rank) for rank in range(2)]
    assert sorted(shares[0][:5] + shares[1][:5]) == sorted(shares[0][5:] + shares[1][5:]) == list(range(N))
    assert shares[0][:5] != shares[0][5:]
