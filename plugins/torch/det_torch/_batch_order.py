"""Batches of a data loader in a reproducible order that can be started at any batch."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset, default_collate

from det_core.errors import InvalidTrial
from det_core.trial.random_generators import derive_seed
from det_torch._batch_layout import BatchLayout
from det_torch._random import forked, seed_all
from det_torch.samplers import RepeatSampler

_STATELESS = ("torch.utils.data.", "torchdata.", "det_torch.")
"""Prefixes of modules whose samplers depend on the seed and the epoch only. Others may keep state between passes."""
_MOST_LENGTHS = 10
"""Number of batches that a batch sampler may yield in an epoch, as a multiple of its length."""
_MIN_LOGGED_EPOCHS = 100
"""Minimum number of epochs to draw again that is logged."""

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, *_FLOATS)
"""Data types that torch can index on all devices."""

_log = logging.getLogger("det.torch")


def read_batches(
    loader: DataLoader[Any], numbers: range | slice, *, seed: int, shares: int, layout: BatchLayout | None = None
) -> DataLoader[Any]:
    """Return a loader of the same data that yields the batches with the given numbers, counted through all epochs.

    No data is read for other numbers. Iterating does not use the global generators of this process, unless the dataset
    itself uses them and there are no data workers.

    Args:
        loader: loader whose dataset, samplers and settings are used.
        numbers: numbers of the batches, rising. A slice stands for that part of the first epoch.
        seed: seed of everything random about the batches.
        shares: number of ranks that the loader's own samplers distribute the batches over. ``numbers`` count the
            batches of all these ranks.
        layout: division of the records into these batches, by default that of a trial that begins.
    """
    stream = NumberedBatchSampler(loader, numbers, seed=seed, shares=shares, layout=layout)
    whole = _can_index_batches(loader)
    batching: dict[str, Any] = (
        {"sampler": stream, "batch_size": None} if whole or loader.batch_sampler is None else {"batch_sampler": stream}
    )
    return DataLoader(
        loader.dataset,
        **batching,
        num_workers=loader.num_workers,
        collate_fn=list if whole else loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=torch.Generator().manual_seed(seed),
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )


def _can_index_batches(loader: DataLoader[Any]) -> bool:
    """Return whether the dataset, indexed with a list, gives the same batch as its records do, only faster."""
    dataset, sampler = loader.dataset, loader.batch_sampler
    return (
        type(dataset) is TensorDataset
        and loader.collate_fn is default_collate
        and type(sampler) is BatchSampler
        and type(sampler.sampler) in (SequentialSampler, RandomSampler)  # others may yield what is no int
        and all(map(_is_plain, dataset.tensors))
    )


def _is_plain(tensor: torch.Tensor) -> bool:
    is_dense = tensor.layout is torch.strided and tensor.is_contiguous()
    return type(tensor) is torch.Tensor and tensor.dtype in _DTYPES and is_dense


class NumberedBatchSampler:
    """Batch sampler over numbered batches.

    With one share, batch ``number`` is batch ``number % n`` of pass ``number // n``. A pass has ``n = len(loader)``
    batches, or what the loader's own batch sampler yields, which may differ between passes. A layout, which only a
    loader with torch's own batch sampler has, may begin within a pass.

    Args:
        loader: source of the batches.
        numbers: numbers of the batches to yield, rising. A slice stands for that part of the first pass.
        seed: seed of everything random about their order.
        shares: number of loaders like this one, one per rank, with ``n`` batches each.
        layout: division of the records into batches, as for `read_batches`.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        numbers: range | slice,
        *,
        seed: int,
        shares: int,
        layout: BatchLayout | None,
    ) -> None:
        self._loader = loader
        self._numbers = numbers
        self._seed = seed
        self._shares = shares
        self._layout = layout
        self._parts = list(iterate_samplers(loader))
        foreign = (type(part) for part in self._parts if not type(part).__module__.startswith(_STATELESS))
        self._foreign = next(foreign, None)
        """Class of a sampler that may have its own state."""
        self._has_own_batches = type(loader.batch_sampler) not in (BatchSampler, type(None))
        self._ends = [0]
        """Number of batches until the end of each drawn pass of a batch sampler that is not torch's own, after 0."""
        self._batches: dict[int, Callable[[int], Any]] = {}
        """Mapping of the last drawn epoch to its batches, empty unless a sampler may have its own state."""

    def __len__(self) -> int:
        return len(self._yielded())

    def __iter__(self) -> Iterator[Any]:
        drawn = range(0)
        for number in self._yielded():
            own = number // self._shares
            if own not in drawn:
                epoch, drawn = self._locate(own)
                batch = self._epoch(epoch)
            index = own - drawn.start
            # The number also distinguishes the ranks, because each batch belongs to one rank.
            yield (
                _ForWorker(derive_seed(self._seed, number), batch(index)) if self._loader.num_workers else batch(index)
            )

    def _yielded(self) -> range:
        if isinstance(self._numbers, range):
            return self._numbers
        return range(self._first_pass_len() * self._shares)[self._numbers]

    def _first_pass_len(self) -> int:
        if not self._has_own_batches:
            return len(self._loader)
        if len(self._ends) == 1:
            self._epoch(0)
        return self._ends[1]

    def _locate(self, number: int) -> tuple[int, range]:
        """Return the pass of a batch, and the numbers of all batches of that pass."""
        if not (self._foreign and self._has_own_batches):
            layout = self._layout or BatchLayout(length=self._first_pass_len())
            return layout.locate(number)
        self._log_drawing((number - self._ends[-1]) // len(self._loader))
        while self._ends[-1] <= number:
            self._epoch(len(self._ends) - 1)
        epoch = bisect_right(self._ends, number) - 1
        return epoch, range(self._ends[epoch], self._ends[epoch + 1])

    def _epoch(self, epoch: int) -> Callable[[int], Any]:
        """Return a function from the index of a batch within the epoch to the indices for the dataset."""
        if epoch in self._batches:  # each validation iterates again
            return self._batches[epoch]
        if self._foreign:
            first = max(self._batches, default=-1) + 1
            self._log_drawing(epoch - first)
            for earlier in range(first, epoch):
                self._draw(earlier)
        drawn = self._draw(epoch)
        self._batches = {epoch: drawn} if self._foreign else {}
        return drawn

    def _log_drawing(self, epochs: int) -> None:
        if self._foreign and epochs >= _MIN_LOGGED_EPOCHS:
            name = self._foreign.__name__
            _log.info("drawing about %d earlier epochs of %s again, because it may have its own state", epochs, name)

    def _draw(self, epoch: int) -> Callable[[int], Any]:
        parts = self._parts
        seed, sampler = derive_seed(self._seed, "epoch", epoch), self._loader.batch_sampler
        if sampler is None:
            order, to_list = _order(parts, epoch, seed)
            return lambda index: to_list(order[index : index + 1])[0]
        if type(sampler) is BatchSampler:
            (order, to_list), size = _order(parts[1:], epoch, seed), sampler.batch_size
            rest = order[self._layout.skipped(epoch) :] if self._layout else order
            return lambda index: to_list(rest[index * size : (index + 1) * size])
        drawn = _drawn_batches(parts, epoch, seed)
        if not self._foreign and len(self._ends) > 1 and len(drawn) != self._ends[1]:
            raise epoch_length_error(type(sampler).__name__, self._ends[1], len(drawn), epoch)
        if epoch == len(self._ends) - 1:
            self._ends.append(self._ends[-1] + len(drawn))
        return drawn.__getitem__


def _order(parts: Sequence[Any], epoch: int, seed: int) -> tuple[Any, Callable[[Any], list[Any]]]:
    """Return all that the first part, a sampler, yields in one epoch, and the function that lists a slice of it."""
    sampler = parts[0]
    if type(sampler) is SequentialSampler:
        return range(len(sampler)), list
    if type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(sampler.data_source):
        order = torch.randperm(len(sampler), generator=torch.Generator().manual_seed(seed))
        return order.numpy(), np.ndarray.tolist
    return _drawn(parts, epoch, seed), list


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
    drawn, length = _draw(parts, epoch, seed, most=1)
    if len(drawn) != length:
        raise epoch_length_error(type(parts[0]).__name__, length, len(drawn), epoch)
    return drawn


def _drawn_batches(parts: Sequence[Any], epoch: int, seed: int) -> Sequence[Any]:
    """Return the batches of one epoch of a batch sampler, whose length may be an estimate."""
    drawn, length = _draw(parts, epoch, seed, most=_MOST_LENGTHS)
    name = type(parts[0]).__name__
    if not 0 < len(drawn) <= _MOST_LENGTHS * length:
        raise epoch_length_error(name, length, len(drawn), epoch)
    if len(drawn) != length:
        _warn_of_length(name, length)
    return drawn


@cache
def _warn_of_length(name: str, length: int) -> None:
    _log.warning(
        "the length of %s is %d, but it yields another number of batches; all of them are used, and an epoch counts as "
        "%d batches. Correct its __len__",
        name,
        length,
        length,
    )


def _draw(parts: Sequence[Any], epoch: int, seed: int, *, most: int) -> tuple[list[Any], int]:
    """Return what the first part yields in one epoch, and its length.

    The draw ends after one item more than ``most`` times the length, because the first part may be endless.
    """
    enter_epoch(parts, epoch, seed)
    sampler = parts[0]
    length = len(sampler)
    endless = any(isinstance(part, RepeatSampler) for part in parts)
    with forked(seed):
        return list(islice(sampler, length if endless else most * length + 1)), length


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
