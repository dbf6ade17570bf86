"""Samplers with the arguments that they had while they were in ``determined.pytorch`` itself."""

from __future__ import annotations

from typing import Any

from det_torch import samplers

__all__ = ["DistributedBatchSampler", "SkipBatchSampler"]


class DistributedBatchSampler(samplers.DistributedBatchSampler):
    """One worker's share of a batch sampler.

    Args:
        batch_sampler: batch sampler to share.
        num_replicas: number of shares, >= 1.
        rank: index of this share.
    """

    def __init__(self, batch_sampler: Any, num_replicas: int, rank: int) -> None:
        super().__init__(batch_sampler, num_replicas, rank)


class SkipBatchSampler(samplers.SkipBatchSampler):
    """All batches after the first ``skip`` batches.

    Args:
        batch_sampler: batch sampler to skip batches of.
        skip: number of batches to skip.
        same_length: whether the length includes the skipped batches, as is right over a `RepeatBatchSampler`.
    """

    def __init__(self, batch_sampler: Any, skip: int, same_length: bool = False) -> None:
        super().__init__(batch_sampler, skip)
        self._hidden = 0 if same_length else skip

    def __len__(self) -> int:
        return max(super().__len__() - self._hidden, 0)
