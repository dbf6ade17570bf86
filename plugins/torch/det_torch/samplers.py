"""Samplers to build an order of reading from parts, each over another sampler.

A loader that a trial returns needs none of them: det repeats it, shares it out among the ranks and continues where
training stopped. They serve loops of your own, and trials that were written with them.

Each exists twice: over a sampler, which yields indices, and over a batch sampler, which yields lists of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from typing import Any, Protocol

import torch
from torch.utils.data import Sampler

from det_core.trial.generators import derive_seed

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
    """What these can be put over: any sampler or batch sampler with a length."""


class _Over(Sampler[Any]):
    def __init__(self, sampler: _Finite) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)


class RepeatSampler(_Over):
    """Goes through the sampler again and again, without end; its length is that of one round.

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
    """One worker's share: the items number ``rank``, ``rank + num_workers``, ``rank + 2 * num_workers``, …

    The shares differ in length by one where ``num_workers`` does not divide the length of the sampler.

    Args:
        num_workers: number of shares, >= 1.
        rank: of this one, 0 <= rank < num_workers.

    Raises:
        ValueError: the rank is out of range.
    """

    def __init__(self, sampler: _Finite, num_workers: int, rank: int) -> None:
        if not 0 <= rank < num_workers:
            raise ValueError(f"rank is {rank}; expected 0 <= rank < num_workers, which is {num_workers}")
        super().__init__(sampler)
        self.num_replicas = num_workers
        self.rank = rank

    def __len__(self) -> int:
        return len(range(self.rank, len(self.sampler), self.num_replicas))

    def __iter__(self) -> Iterator[Any]:
        return islice(self.sampler, self.rank, None, self.num_replicas)


class DistributedBatchSampler(DistributedSampler):
    """`DistributedSampler` over a batch sampler: whole batches are shared out."""

    def __init__(self, batch_sampler: _Finite, num_workers: int, rank: int) -> None:
        super().__init__(batch_sampler, num_workers, rank)


class SkipSampler(_Over):
    """All but the first ``skip`` items. Put it over a `RepeatSampler`, or every round is cut short.

    Its length is that of the sampler, whatever is skipped, so that epochs keep their length.

    Args:
        skip: number of items, >= 0.

    Raises:
        ValueError: ``skip`` is negative.
    """

    def __init__(self, sampler: _Finite, skip: int) -> None:
        if skip < 0:
            raise ValueError(f"skip is {skip}; expected a number of items to leave out, 0 or more")
        super().__init__(sampler)
        self.skip = skip

    def __iter__(self) -> Iterator[Any]:
        return islice(self.sampler, self.skip, None)


class SkipBatchSampler(SkipSampler):
    """`SkipSampler` over a batch sampler."""

    def __init__(self, batch_sampler: _Finite, skip: int) -> None:
        super().__init__(batch_sampler, skip)


class ReproducibleShuffleSampler(_Over):
    """All items in an order that depends on ``seed`` and the epoch alone; each round is the next epoch.

    Put it under a `RepeatSampler` or `SkipSampler`, never over one.
    """

    def __init__(self, sampler: _Finite, seed: int) -> None:
        super().__init__(sampler)
        self.seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Make the next round that of this epoch, counted from 0."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        generator = torch.Generator().manual_seed(derive_seed(self.seed, self._epoch))
        self._epoch += 1
        items = list(self.sampler)
        return (items[index] for index in torch.randperm(len(items), generator=generator).tolist())


class ReproducibleShuffleBatchSampler(ReproducibleShuffleSampler):
    """`ReproducibleShuffleSampler` over a batch sampler: the batches change places, what is in them stays."""

    def __init__(self, batch_sampler: _Finite, seed: int) -> None:
        super().__init__(batch_sampler, seed)


def adapt_batch_sampler(
    batch_sampler: _Finite, *, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
) -> _Finite:
    """One worker's share of the batches, again and again, without those already trained.

    Args:
        repeat: as `RepeatBatchSampler`.
        skip: number of batches to leave out of this worker's share, as `SkipBatchSampler`.
        num_replicas: number of workers, and ``rank`` of this one, as `DistributedBatchSampler`.
    """
    if repeat:
        batch_sampler = RepeatBatchSampler(batch_sampler)
    if num_replicas > 1:
        batch_sampler = DistributedBatchSampler(batch_sampler, num_replicas, rank)
    return SkipBatchSampler(batch_sampler, skip) if skip else batch_sampler
