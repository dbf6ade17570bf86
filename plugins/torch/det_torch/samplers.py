"""Composable samplers, each of which wraps another sampler.

A loader that a trial returns does not need them. det repeats the loader, distributes its batches over the ranks and
continues where training stopped. The samplers are for custom training loops and for older trials that use them.

Each has two variants, one over a sampler, which yields indices, and one over a batch sampler, which yields lists of
indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from typing import Any, Protocol

import numpy as np
from torch.utils.data import Sampler

__all__ = [
    "DistributedBatchSampler",
    "DistributedSampler",
    "RepeatBatchSampler",
    "RepeatSampler",
    "ReproducibleShuffleBatchSampler",
    "ReproducibleShuffleSampler",
    "SkipBatchSampler",
    "SkipSampler",
    "adapt_batch_sampler",
]


class _Finite(Sized, Iterable[Any], Protocol):
    """A sampler or batch sampler with a length, which the samplers of this module can wrap."""


class _Over(Sampler[Any]):
    def __init__(self, sampler: _Finite) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)


class RepeatSampler(_Over):
    """Endless repetition of a sampler. The length is that of one round.

    Args:
        sampler: sampler to repeat.

    Raises:
        ValueError: a round yields nothing.
    """

    def __iter__(self) -> Iterator[Any]:
        while True:
            number = -1
            for number, item in enumerate(self.sampler):  # noqa: B007
                yield item
            if number < 0:
                raise ValueError(f"{type(self.sampler).__name__} yields nothing, so it cannot be repeated")


class RepeatBatchSampler(RepeatSampler):
    """`RepeatSampler` over a batch sampler."""

    def __init__(self, batch_sampler: _Finite) -> None:
        super().__init__(batch_sampler)


class DistributedSampler(_Over):
    """One worker's share of a sampler, with the items ``rank``, ``rank + num_workers``, ``rank + 2 * num_workers``, …

    The shares differ in length by one if ``num_workers`` does not divide the length of the sampler.

    Args:
        sampler: sampler to share.
        num_workers: number of shares, >= 1.
        rank: index of this share, 0 <= rank < num_workers.

    Raises:
        ValueError: the rank is out of range.
    """

    def __init__(self, sampler: _Finite, num_workers: int, rank: int) -> None:
        if not 0 <= rank < num_workers:
            raise ValueError(f"rank is {rank}; expected 0 <= rank < num_workers, which is {num_workers}")
        super().__init__(sampler)
        self.num_replicas = num_workers
        """Number of shares. The name is that of PyTorch's own sampler."""
        self.rank = rank

    def __len__(self) -> int:
        return len(range(self.rank, len(self.sampler), self.num_replicas))

    def __iter__(self) -> Iterator[Any]:
        return islice(self.sampler, self.rank, None, self.num_replicas)


class DistributedBatchSampler(DistributedSampler):
    """`DistributedSampler` over a batch sampler, which distributes whole batches."""

    def __init__(self, batch_sampler: _Finite, num_workers: int, rank: int) -> None:
        super().__init__(batch_sampler, num_workers, rank)


class SkipSampler(_Over):
    """All items of a sampler after the first ``skip`` items.

    Use it over a `RepeatSampler`, otherwise it shortens every round. Its length is that of the sampler, skipped items
    included, so that epochs keep their length.

    Args:
        sampler: sampler to skip items of.
        skip: number of items to skip, >= 0.

    Raises:
        ValueError: ``skip`` is negative.
    """

    def __init__(self, sampler: _Finite, skip: int) -> None:
        if skip < 0:
            raise ValueError(f"skip is {skip}; expected a number of items to skip, 0 or more")
        super().__init__(sampler)
        self.skip = skip

    def __iter__(self) -> Iterator[Any]:
        return islice(self.sampler, self.skip, None)


class SkipBatchSampler(SkipSampler):
    """`SkipSampler` over a batch sampler."""

    def __init__(self, batch_sampler: _Finite, skip: int) -> None:
        super().__init__(batch_sampler, skip)


class ReproducibleShuffleSampler(_Over):
    """All items of a sampler in an order that depends only on the seed and the epoch. Each round is the next epoch.

    The order of all epochs comes from one ``numpy.random.RandomState``, so that it is the same as in the original. Use
    it under a `RepeatSampler` or `SkipSampler`, never over one.

    Args:
        sampler: sampler to shuffle. Its length must be the same in every epoch.
        seed: seed of the order, 0 <= seed < 2**32.
    """

    def __init__(self, sampler: _Finite, seed: int) -> None:
        super().__init__(sampler)
        self.seed = seed
        self._random = np.random.RandomState(seed)
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next round.

        Args:
            epoch: number of the epoch, from 0.
        """
        if epoch < self._epoch:
            self._random.seed(self.seed)
            self._epoch = 0
        while self._epoch < epoch:
            self._shuffle(len(self.sampler))

    def __iter__(self) -> Iterator[Any]:
        items = list(self.sampler)
        return (items[index] for index in self._shuffle(len(items)))

    def _shuffle(self, count: int) -> list[int]:
        """Return the order of the next epoch."""
        self._epoch += 1
        order: list[int] = self._random.permutation(count).tolist()
        return order


class ReproducibleShuffleBatchSampler(ReproducibleShuffleSampler):
    """`ReproducibleShuffleSampler` over a batch sampler, which shuffles the batches and not their contents."""

    def __init__(self, batch_sampler: _Finite, seed: int) -> None:
        super().__init__(batch_sampler, seed)


def adapt_batch_sampler(
    batch_sampler: _Finite, *, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
) -> _Finite:
    """Return a batch sampler that repeats, distributes and skips batches, in this order.

    Args:
        batch_sampler: batch sampler to wrap.
        repeat: whether to repeat without end, as `RepeatBatchSampler`.
        skip: number of batches of this worker's share to skip, as `SkipBatchSampler`.
        num_replicas: number of workers, as `DistributedBatchSampler`.
        rank: rank of this worker, 0 <= rank < num_replicas.
    """
    if repeat:
        batch_sampler = RepeatBatchSampler(batch_sampler)
    if num_replicas > 1:
        batch_sampler = DistributedBatchSampler(batch_sampler, num_replicas, rank)
    return SkipBatchSampler(batch_sampler, skip) if skip else batch_sampler
