"""Batches of a data loader in a reproducible order that can be started at any batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from det_core.errors import InvalidTrial
from det_core.trial.random_generators import derive_seed
from det_torch._random import forked, seed_all
from det_torch.samplers import RepeatSampler

_STATELESS = ("torch.utils.data.", "torchdata.", "det_torch.")
"""Prefixes of modules whose samplers depend on the seed and the epoch only. Others may keep state between passes."""
_MIN_LOGGED_EPOCHS = 100
"""Minimum number of epochs to draw again that is logged."""

_log = logging.getLogger("det.torch")


def read_batches(loader: DataLoader[Any], numbers: range | slice, *, seed: int, shares: int = 1) -> DataLoader[Any]:
    """Return a loader of the same data that yields the batches with the given numbers, counted through all epochs.

    No data is read for other numbers. Iterating does not use the global generators of this process, unless the dataset
    itself uses them and there are no data workers.

    Args:
        loader: loader whose dataset, samplers and settings are used.
        numbers: numbers of the batches, rising. A slice stands for that part of the first epoch.
        seed: seed of everything random about the batches.
        shares: number of ranks that the loader's own samplers distribute the batches over. ``numbers`` count the
            batches of all these ranks.
    """
    stream = NumberedBatchSampler(loader, numbers, seed=seed, shares=shares)
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


class NumberedBatchSampler:
    """Batch sampler over numbered batches.

    With one share, batch ``number`` is batch ``number % n`` of pass ``number // n``. A pass has ``n = len(loader)``
    batches. If the loader's own batch sampler yields one batch more or less than its length, ``n`` is what it yields.

    Args:
        loader: source of the batches.
        numbers: numbers of the batches to yield, rising. A slice stands for that part of the first pass.
        seed: seed of everything random about their order.
        shares: number of loaders like this one, one per rank, with ``n`` batches each.
    """

    def __init__(self, loader: DataLoader[Any], numbers: range | slice, *, seed: int, shares: int) -> None:
        self._loader = loader
        self._numbers = numbers
        self._seed = seed
        self._shares = shares
        self._pass_len: int | None = None
        """Number of batches of each pass of a batch sampler that is not torch's own, once a pass was drawn."""
        self._batches: dict[int, Callable[[int], Any]] = {}
        """Mapping of the last drawn epoch to its batches, empty unless a sampler may have its own state."""

    def __len__(self) -> int:
        return len(self._yielded())

    def __iter__(self) -> Iterator[Any]:
        current, pass_len = -1, self._measure_pass()
        for number in self._yielded():
            epoch, index = divmod(number // self._shares, pass_len)
            if epoch != current:
                current, batch = epoch, self._epoch(epoch)
            # The number also distinguishes the ranks, because each batch belongs to one rank.
            yield (
                _ForWorker(derive_seed(self._seed, number), batch(index)) if self._loader.num_workers else batch(index)
            )

    def _yielded(self) -> range:
        if isinstance(self._numbers, range):
            return self._numbers
        return range(self._measure_pass() * self._shares)[self._numbers]

    def _measure_pass(self) -> int:
        """Return the number of batches of a pass."""
        if type(self._loader.batch_sampler) in (BatchSampler, type(None)):
            return len(self._loader)
        if self._pass_len is None:
            self._epoch(0)
        assert self._pass_len is not None
        return self._pass_len

    def _epoch(self, epoch: int) -> Callable[[int], Any]:
        """Return a function from the index of a batch within the epoch to the indices for the dataset."""
        if epoch in self._batches:  # each validation iterates again
            return self._batches[epoch]
        parts = list(iterate_samplers(self._loader))
        foreign = [type(part).__name__ for part in parts if not type(part).__module__.startswith(_STATELESS)]
        if foreign:
            first = max(self._batches, default=-1) + 1
            if epoch - first >= _MIN_LOGGED_EPOCHS:
                _log.info("drawing %d earlier epochs of %s again, because it may have its own state", epoch, foreign[0])
            for earlier in range(first, epoch):
                self._draw(parts, earlier)
        drawn = self._draw(parts, epoch)
        self._batches = {epoch: drawn} if foreign else {}
        return drawn

    def _draw(self, parts: Sequence[Any], epoch: int) -> Callable[[int], Any]:
        seed, sampler = derive_seed(self._seed, "epoch", epoch), self._loader.batch_sampler
        if sampler is None:
            order = _order(parts, epoch, seed)
            return lambda index: _as_list(order[index : index + 1])[0]
        if type(sampler) is BatchSampler:
            order, size = _order(parts[1:], epoch, seed), sampler.batch_size
            return lambda index: _as_list(order[index * size : (index + 1) * size])
        drawn = _drawn_batches(parts, epoch, seed, self._pass_len)
        self._pass_len = len(drawn)
        return drawn.__getitem__


def _order(parts: Sequence[Any], epoch: int, seed: int) -> Any:
    """Return everything that the first part, a sampler, yields in one epoch, as a sequence that supports slices."""
    sampler = parts[0]
    if type(sampler) is SequentialSampler:
        return range(len(sampler))
    if type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(sampler.data_source):
        return torch.randperm(len(sampler), generator=torch.Generator().manual_seed(seed)).numpy()
    return _drawn(parts, epoch, seed)


def iterate_samplers(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yield the loader's batch sampler or sampler, and all samplers that it wraps."""
    part: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    while part is not None:
        yield part
        part = getattr(part, "sampler", None)


def enter_epoch(parts: Iterable[Any], epoch: int, seed: int) -> None:
    """Set the epoch of the parts of a loader that have ``set_epoch``, and seed the generators that the parts own."""
    for part in parts:
        if hasattr(part, "set_epoch"):
            part.set_epoch(epoch)
        if isinstance(generator := getattr(part, "generator", None), torch.Generator):
            generator.manual_seed(seed)


def epoch_length_error(what: str, expected: int, found: int, epoch: int) -> InvalidTrial:
    """Return the error for an epoch whose number of items differs from the declared length.

    Args:
        what: name of the sampler or loader.
        expected: its declared length.
        found: number of items, where any number above ``expected`` means that the epoch had not ended.
        epoch: number of the epoch, from 0.
    """
    yielded = found if found <= expected else "more"
    return InvalidTrial(
        f"the length of {what} is {expected}, but it yielded {yielded} in epoch {epoch}; "
        "the number must be equal to the length in every epoch"
    )


def _drawn(parts: Sequence[Any], epoch: int, seed: int) -> Sequence[Any]:
    """Return everything that the first part yields in one epoch, which is as much as its length says."""
    drawn, length = _draw(parts, epoch, seed)
    if len(drawn) != length:
        raise epoch_length_error(type(parts[0]).__name__, length, len(drawn), epoch)
    return drawn


def _drawn_batches(parts: Sequence[Any], epoch: int, seed: int, expected: int | None) -> Sequence[Any]:
    """Return the batches of one epoch of a batch sampler, whose length may ignore the incomplete last batch.

    Args:
        parts: batch sampler, and all samplers that it wraps.
        epoch: number of the epoch, from 0.
        seed: seed of the epoch.
        expected: number of batches of an earlier epoch, if one was drawn.
    """
    drawn, length = _draw(parts, epoch, seed)
    name = type(parts[0]).__name__
    if not drawn or len(drawn) != (expected or len(drawn)) or abs(len(drawn) - length) > 1:
        raise epoch_length_error(name, expected or length, len(drawn), epoch)
    if len(drawn) != length:
        _warn_of_length(name, length, len(drawn))
    return drawn


@cache
def _warn_of_length(name: str, length: int, found: int) -> None:
    _log.warning(
        "the length of %s is %d, but it yields %d batches, all of which are used; an epoch counts as %d batches. "
        "Correct its __len__",
        name,
        length,
        found,
        length,
    )


def _draw(parts: Sequence[Any], epoch: int, seed: int) -> tuple[list[Any], int]:
    """Return what the first part yields in one epoch, but at most two items more than its length, and its length."""
    enter_epoch(parts, epoch, seed)
    sampler = parts[0]
    length = len(sampler)
    endless = any(isinstance(part, RepeatSampler) for part in parts)
    with forked(seed):
        return list(islice(sampler, length if endless else length + 2)), length


def _as_list(indices: Any) -> list[Any]:
    return indices.tolist() if isinstance(indices, np.ndarray) else list(indices)


class _ForWorker:
    """Indices that reseed a data worker on arrival, so that its random numbers depend on the batch alone.

    The seed takes effect when torch's worker loop takes the indices from its queue. The dataset, its ``__getitems__``
    and the user's ``worker_init_fn`` stay unchanged.
    """

    def __init__(self, seed: int, indices: Any) -> None:
        self._seed = seed
        self._indices = indices

    def __reduce__(self) -> tuple[Callable[[int, Any], Any], tuple[int, Any]]:
        return _arrive, (self._seed, self._indices)


def _arrive(seed: int, indices: Any) -> Any:
    seed_all(seed)
    return indices
