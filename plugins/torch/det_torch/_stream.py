"""The batches of a data loader in an order that can be entered anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from det_core.errors import InvalidTrial
from det_torch._random import derive_seed, forked, seed_all


def read(loader: DataLoader[Any], numbers: range, *, seed: int) -> DataLoader[Any]:
    """A loader of the same data that yields the batches with these numbers, counted through all epochs.

    Nothing is read for numbers that are left out, and iterating draws from no global generator of this
    process, except what the dataset itself draws where there are no data workers.
    """
    stream = BatchStream(loader, numbers, seed=seed)
    batching: dict[str, Any] = (
        {"sampler": stream, "batch_size": None} if loader.batch_sampler is None else {"batch_sampler": stream}
    )
    return DataLoader(
        loader.dataset,
        **batching,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=torch.Generator().manual_seed(seed),
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )


class BatchStream:
    """A batch sampler over numbered batches: batch ``number`` is batch ``number % n`` of epoch ``number // n``.

    Args:
        loader: where the batches come from, ``n = len(loader)`` per epoch.
        numbers: which ones to yield, rising.
        seed: of everything random about their order.
    """

    def __init__(self, loader: DataLoader[Any], numbers: range, *, seed: int) -> None:
        self._loader = loader
        self._numbers = numbers
        self._seed = seed
        self._epoch_len = len(loader)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Any]:
        current = -1
        for number in self._numbers:
            epoch, index = divmod(number, self._epoch_len)
            if epoch != current:
                current, batch = epoch, self._epoch(epoch)
            # The number tells the ranks apart too: each batch belongs to one of them.
            yield (
                _ForWorker(derive_seed(self._seed, number), batch(index)) if self._loader.num_workers else batch(index)
            )

    def _epoch(self, epoch: int) -> Callable[[int], Any]:
        """From the number of a batch within the epoch to what the dataset is asked for."""
        seed, sampler = derive_seed(self._seed, "epoch", epoch), self._loader.batch_sampler
        if sampler is None:
            order = _order(self._loader.sampler, epoch, seed)
            return lambda index: _as_list(order[index : index + 1])[0]
        if type(sampler) is BatchSampler:
            order, size = _order(sampler.sampler, epoch, seed), sampler.batch_size
            return lambda index: _as_list(order[index * size : (index + 1) * size])
        return _drawn(sampler, epoch, seed).__getitem__


def _order(sampler: Any, epoch: int, seed: int) -> Any:
    """All that the sampler yields in one epoch: a sequence that slices."""
    if type(sampler) is SequentialSampler:
        return range(len(sampler))
    if type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(sampler.data_source):
        return torch.randperm(len(sampler), generator=torch.Generator().manual_seed(seed)).numpy()
    return _drawn(sampler, epoch, seed)


def _drawn(sampler: Any, epoch: int, seed: int) -> Sequence[Any]:
    parts: tuple[Any, ...] = (sampler, getattr(sampler, "sampler", None))
    for part in parts:
        if hasattr(part, "set_epoch"):
            part.set_epoch(epoch)
        if isinstance(generator := getattr(part, "generator", None), torch.Generator):
            generator.manual_seed(seed)
    expected = len(sampler)
    with forked(seed):
        drawn = list(islice(sampler, expected + 1))
    if len(drawn) != expected:
        found = "more" if len(drawn) > expected else len(drawn)
        raise InvalidTrial(
            f"the length of {type(sampler).__name__} is {expected}, but it yielded {found} in epoch {epoch}; "
            "it must yield as many in every epoch as its length says"
        )
    return drawn


def _as_list(indices: Any) -> list[Any]:
    return indices.tolist() if isinstance(indices, np.ndarray) else list(indices)


class _ForWorker:
    """Indices on their way to a data worker. Arriving there reseeds it, so what it draws depends on the batch alone.

    The seed takes effect where torch's worker loop takes the indices from its queue, which
    leaves the dataset, its ``__getitems__`` and the user's ``worker_init_fn`` as they are.
    """

    def __init__(self, seed: int, indices: Any) -> None:
        self._seed = seed
        self._indices = indices

    def __reduce__(self) -> tuple[Callable[[int, Any], Any], tuple[int, Any]]:
        return _arrive, (self._seed, self._indices)


def _arrive(seed: int, indices: Any) -> Any:
    seed_all(seed)
    return indices
