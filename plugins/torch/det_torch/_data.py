"""What a trial returns its data in, and how batches get to the device."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence, Sized
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np
import torch
import torch.utils.data
from torch.nn.utils.rnn import PackedSequence

from det_core.errors import InvalidTrial
from det_torch._iterable import Passes, length_of, torch_iterates
from det_torch._stream import chain, read

TorchData: TypeAlias = dict[str, Any] | Sequence[Any] | torch.Tensor
"""A batch as trials get it: a tensor, or a dict, list or tuple of them, nested at will."""

_T_co = TypeVar("_T_co", covariant=True)
_NUMERIC = "biufc"
_LONG = 100
"""Batches to read again that are worth a line in the log."""

_log = logging.getLogger("det.torch")


class DataLoader(torch.utils.data.DataLoader[_T_co]):
    """`torch.utils.data.DataLoader`, argument for argument; return one from ``build_*_data_loader``.

    Batches may be ``np.ndarray``, ``torch.Tensor``, or tuples, lists and dicts of them, nested at will.

    By itself it iterates like torch's. Under det, training goes through it again and again, each slot taking its
    share of the batches, so that a resumed trial sees exactly the batches that it would have seen:

    - Datasets draw from the global generators of Python, numpy or torch, not from one of their own.
      Data workers are reseeded for every batch.
    - The order is a function of the trial's seed and the epoch alone: a sampler or batch sampler of your own gets
      ``set_epoch`` if it has it, its ``generator`` is reseeded, and it draws from seeded global generators. A resumed
      trial draws the earlier epochs again, so that a sampler with its own state continues exactly.
    - Of an `IterableDataset` each epoch is one pass; it gets ``set_epoch`` too. A resumed trial reads the batches of
      the epoch again and drops them, or gives the dataset its state, if it has ``state_dict`` and ``load_state_dict``
      (with data workers: and is in torchdata's `StatefulDataLoader`). Every slot reads the whole stream and keeps
      its share, so do not share it out yourself. With several data workers, an epoch may be longer than
      ``__len__`` says, by a batch for each of them but one.
    - A loader of a class with its own ``__iter__`` is read as a stream is.
    """


class Stream(Protocol):
    """One rank's training data: its batches, epoch after epoch, without end."""

    batches_per_epoch: int | None
    """Batches that each rank trains per epoch; None if nothing says how long one is."""

    def start(self, number: int, state: Any | None) -> Iterator[Any]:
        """This rank's batches from its ``number``-th on, counted since the trial began.

        Args:
            state: what `state` returned at that point; without it, a stream is read again from the trial's begin.

        Raises:
            InvalidTrial: (while iterating) an epoch is empty, or not as long as the loader says.
            RuntimeError: (while iterating) a data worker died, or let the loader's ``timeout`` pass.
        """

    def state(self) -> Any | None:
        """What `start` needs to continue after the last batch that was handed out, as plain data; None if nothing."""

    def close(self) -> None:
        """End the data workers, and the iterator that `start` returned."""


def training_data(
    loader: Any,
    *,
    rank: int,
    size: int,
    seed: int,
    records_per_epoch: int = 0,
    method: str = "build_training_data_loader",
) -> Stream:
    """The batches of a loader shared out among the ranks: of all epochs' batches in a row, the i-th is rank i % size's.

    A loader whose samplers share them out among ``size`` ranks by themselves (torch's `DistributedSampler`, or those
    of `det_torch.samplers`) is taken for this rank's share.

    Args:
        seed: of everything random about the data; the same on all ranks.
        records_per_epoch: length of an epoch, over all ranks, where the loader has none; 0 if unknown.
        method: what returned the loader, for messages.

    Raises:
        InvalidTrial: the loader cannot be used; the message says why.
    """
    length = _checked_length(loader, method)
    shares = _shares(loader, size)
    own = range(rank, sys.maxsize, size)
    if length is not None:
        epoch_len: int | None = math.ceil(length * shares / size)
    else:
        epoch_len = max(records_per_epoch // (size * (loader.batch_size or 1)), 1) if records_per_epoch else None
    if _is_numbered(loader):
        return _NumberedStream(loader, own, shares, seed, epoch_len)
    return _PassStream(Passes(loader, seed=seed), own if shares == 1 else range(sys.maxsize), epoch_len)


class AsItIs:
    """The stream of a loader that shuffles, repeats, skips and shares out by itself.

    Raises:
        InvalidTrial: it is no loader, or empty.
    """

    def __init__(self, loader: Any, method: str = "build_training_data_loader") -> None:
        self.batches_per_epoch = _checked_length(loader, method)
        self._loader = loader

    def start(self, number: int, state: Any | None) -> Iterator[Any]:
        return iter(self._loader)

    def state(self) -> None:
        return None

    def close(self) -> None:
        """Torch ends the data workers once the iterator is gone."""


def validation_data(
    loader: Any, *, rank: int, size: int, seed: int, whole: bool, method: str = "build_validation_data_loader"
) -> tuple[Iterable[Any], int | None]:
    """This rank's share of one epoch's batches, to be iterated any number of times, each time alike.

    Args:
        whole: all batches that the loader has, not a share of them.

    Returns:
        The batches; and how many all ranks together have, if that is known.

    Raises:
        InvalidTrial: the loader cannot be used; the message says why. Iterating raises as `Stream.start` does.
    """
    length = _checked_length(loader, method)
    shares = _shares(loader, size)
    total = None if length is None else length * shares
    everything = whole and shares == 1
    if _is_numbered(loader):
        numbers = range(total or 0)
        return read(loader, numbers if everything else numbers[rank::size], seed=seed, shares=shares), total
    rank, size = (0, 1) if whole or shares > 1 else (rank, size)
    return _OnePass(loader, rank, size, seed), total


class _NumberedStream:
    """Batches that can be had by number, so that there is no state."""

    def __init__(self, loader: Any, own: range, shares: int, seed: int, batches_per_epoch: int | None) -> None:
        self.batches_per_epoch = batches_per_epoch
        self._loader = loader
        self._own = own
        self._shares = shares
        self._seed = seed
        self._batches: Generator[Any] | None = None

    def start(self, number: int, state: Any | None) -> Iterator[Any]:
        self.close()
        self._batches = _each(read(self._loader, self._own[number:], seed=self._seed, shares=self._shares))
        return self._batches

    def state(self) -> None:
        return None

    def close(self) -> None:
        if self._batches is not None:
            self._batches.close()


@dataclass
class _Place:
    """Where a stream is being read."""

    epoch: int = 0
    first: int = 0
    """Number of the epoch's first batch, among those of all ranks and epochs."""
    done: int = 0
    """Batches of the epoch that were read."""


class _PassStream:
    """Batches that come one after the other."""

    def __init__(self, passes: Passes, own: range, batches_per_epoch: int | None) -> None:
        self.batches_per_epoch = batches_per_epoch
        self._passes = passes
        self._own = own
        self._place = _Place()
        self._batches: Generator[Any] | None = None

    def start(self, number: int, state: Any | None) -> Iterator[Any]:
        self.close()
        self._place, dataset = _Place(), None
        if state is not None:
            dataset = state["dataset"]
            self._place = _Place(state["epoch"], state["first"], 0 if dataset is None else state["done"])
        again = self._own[number] - self._place.first - self._place.done
        if again >= _LONG:
            _log.info(
                "reading %d batches again, which were trained before; "
                "a dataset with state_dict() and load_state_dict() is spared that",
                again,
            )
        self._batches = _pass_by_pass(self._passes, self._place, self._own[number:], dataset)
        return self._batches

    def state(self) -> dict[str, Any]:
        return {**asdict(self._place), "dataset": self._passes.state()}

    def close(self) -> None:
        if self._batches is not None:
            self._batches.close()
        self._passes.close()


# The generators hold no stream: in a cycle, data workers would outlive a stream that was dropped.
def _each(loader: Iterable[Any]) -> Generator[Any]:
    yield from loader


def _pass_by_pass(passes: Passes, place: _Place, numbers: range, dataset: Any) -> Generator[Any]:
    while True:
        for batch in passes.read(place.epoch, place.done, dataset):
            place.done += 1
            if place.first + place.done - 1 in numbers:
                yield batch
        place.epoch, place.first, place.done, dataset = place.epoch + 1, place.first + place.done, 0, None


class _OnePass:
    """A share of the first pass, again and again."""

    def __init__(self, loader: Any, rank: int, size: int, seed: int) -> None:
        self.dataset = loader.dataset
        self._loader = loader
        self._passes = Passes(loader, seed=seed)
        self._rank = rank
        self._size = size

    def __iter__(self) -> Iterator[Any]:
        return islice(self._passes.read(0), self._rank, None, self._size)

    def __len__(self) -> int:
        return len(range(self._rank, len(self._loader), self._size))


def _checked_length(loader: Any, method: str) -> int | None:
    """Batches per epoch of a loader that can be used, if it says."""
    if not isinstance(loader, torch.utils.data.DataLoader):
        raise InvalidTrial(f"{method}() returned {loader!r}; expected a det_torch.DataLoader")
    length = length_of(loader)
    if length is None and _is_numbered(loader):
        raise InvalidTrial(
            f"{method}() returned a data loader without a length; add __len__ to its dataset or batch sampler"
        )
    if length == 0:
        raise InvalidTrial(
            f"{method}() returned a data loader of length 0: {len(cast(Sized, loader.dataset))} records, "
            f"batch_size {loader.batch_size}, drop_last {loader.drop_last}; expected at least one batch"
        )
    return length


def _is_numbered(loader: Any) -> bool:
    return torch_iterates(loader) and not isinstance(loader.dataset, torch.utils.data.IterableDataset)


def _shares(loader: Any, size: int) -> int:
    """How many ranks the loader's samplers share its batches out among: 1, or all."""
    return size if any(getattr(part, "num_replicas", 1) == size for part in chain(loader)) else 1


def to_device(data: Any, device: torch.device) -> Any:
    """Move what has a method ``to`` within nested dicts, lists and tuples; numeric arrays become tensors.

    Tensors in pinned memory are copied while the caller goes on.
    """
    if type(data) is list:  # most batches are, and the tests below take as long as moving them does
        return [to_device(value, device) for value in data]
    if isinstance(data, torch.Tensor) and data.device == device:
        return data
    if isinstance(data, (torch.Tensor, PackedSequence)):
        # Towards the CPU, nothing would wait for the copy before its values are used.
        return cast(Any, data).to(device, non_blocking=device.type != "cpu")
    if hasattr(data, "to"):  # the batches of other libraries
        return data.to(device)
    if isinstance(data, dict):
        return {key: to_device(value, device) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        moved = [to_device(value, device) for value in data]
        if isinstance(data, list):
            return moved
        return type(data)(*moved) if hasattr(data, "_fields") else tuple(moved)
    if isinstance(data, np.ndarray) and data.dtype.kind in _NUMERIC:
        # torch refuses strides < 0 and warns about read-only memory.
        return torch.from_numpy(np.require(data, requirements=["C", "W"])).to(device)
    return data
