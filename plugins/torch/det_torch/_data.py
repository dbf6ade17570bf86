"""Data loaders of trials, their distribution among ranks, and the transfer of batches to the device."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import numpy as np
import torch
import torch.utils.data
from torch.nn.utils.rnn import PackedSequence

from det_core.errors import InvalidTrial
from det_torch._batch_layout import BatchLayout
from det_torch._batch_order import iterate_samplers, read_batches
from det_torch._iterable_loaders import PassLoader, pass_length, torch_iterates
from det_torch.samplers import adapt_batch_sampler

TorchData: TypeAlias = dict[str, Any] | Sequence[Any] | torch.Tensor
"""Type of batches that are passed to trials, which are tensors in arbitrarily nested dicts, lists and tuples."""

_T_co = TypeVar("_T_co", covariant=True)
_NUMERIC = "biufc"
_TRAINING_METHOD = "build_training_data_loader"
_MIN_LOGGED_BATCHES = 100
"""Smallest number of batches for which repeated reading is logged."""

_log = logging.getLogger("det.torch")


class DataLoader(torch.utils.data.DataLoader[_T_co]):
    """Data loader to return from ``build_*_data_loader``, with the arguments of `torch.utils.data.DataLoader`.

    Batches may be ``np.ndarray``, ``torch.Tensor``, or arbitrarily nested tuples, lists and dicts of them.

    Outside of det, it iterates like torch's data loader. Under det, training iterates over it repeatedly, and each slot
    takes its share of the batches. A resumed trial gets exactly the batches that an uninterrupted trial would get.
    These rules apply:

    - Datasets must draw random numbers from the global generators of Python, numpy or torch, not from generators of
      their own. Data workers are reseeded for every batch.
    - The order of batches depends only on the trial's seed and the epoch. Custom samplers and batch samplers draw from
      seeded global generators. Their ``set_epoch`` is called if it exists, and their ``generator`` is reseeded. A
      resumed trial draws the earlier epochs again, so that a sampler with its own state continues exactly.
    - Each epoch is one pass over an `IterableDataset`, whose ``set_epoch`` is called too. A resumed trial reads the
      earlier batches of the epoch again and drops them. If the dataset has ``state_dict`` and ``load_state_dict``, its
      state is restored instead. With data workers, this also requires torchdata's ``StatefulDataLoader``.
    - Every slot reads the whole stream of an `IterableDataset` and keeps its share, so do not split the stream
      yourself. With n > 1 data workers, an epoch may have up to n - 1 batches more than ``__len__`` says.
    - A loader whose class has its own ``__iter__`` is read like a stream.
    """

    def get_data_loader(
        self, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
    ) -> torch.utils.data.DataLoader[_T_co]:
        """Return a loader of one worker's share of the batches, for loops other than det's.

        Args:
            repeat: whether to repeat the batches without end.
            skip: number of batches of this worker's share to skip.
            num_replicas: number of workers.
            rank: rank of this worker, 0 <= rank < num_replicas.

        Raises:
            InvalidTrial: the dataset is a stream, or the loader makes no batches.
        """
        if isinstance(self.dataset, torch.utils.data.IterableDataset) or self.batch_sampler is None:
            raise InvalidTrial(
                f"get_data_loader() needs a batch sampler, but the loader of {type(self.dataset).__name__} has none; "
                "use a dataset with __getitem__ and a batch_size, or iterate over the loader itself"
            )
        workers = {
            name: getattr(self, name) for name in ("multiprocessing_context", "prefetch_factor", "persistent_workers")
        }
        return torch.utils.data.DataLoader(
            self.dataset,
            batch_sampler=cast(
                Any,
                adapt_batch_sampler(
                    cast(Any, self.batch_sampler), repeat=repeat, skip=skip, num_replicas=num_replicas, rank=rank
                ),
            ),
            num_workers=self.num_workers,
            collate_fn=self.collate_fn,
            pin_memory=self.pin_memory,
            timeout=self.timeout,
            worker_init_fn=self.worker_init_fn,
            generator=self.generator,
            **(workers if self.num_workers else {}),
        )


class TrainingStream(Protocol):
    """Endless sequence of the training batches of one rank, epoch after epoch."""

    batches_per_epoch: int | None
    """Number of batches that each rank trains per epoch. None if the length of an epoch is unknown."""
    layout: BatchLayout | None
    """Division of the records into batches, with which another number of ranks can continue exactly. None if only the
    same number of ranks can do so."""

    def start(self, number: int, state: Any | None, position: Mapping[str, int] | None = None) -> Iterator[Any]:
        """Return an iterator over this rank's batches from a given batch on.

        Args:
            number: number of the first batch, counted from 0 since the trial began.
            state: value that `state` returned at that point. If it is None, a stream is read again from the beginning
                of the trial.
            position: position of the `layout` at that point, which may be that of another number of ranks.

        Raises:
            InvalidTrial: (while iterating) an epoch is empty, or its length differs from the loader's.
            RuntimeError: (while iterating) a data worker died or exceeded the loader's ``timeout``.
        """

    def state(self) -> Any | None:
        """Return plain data with which `start` can continue after the last yielded batch. None if it needs no data."""

    def close(self) -> None:
        """Stop the data workers, and end the iterator that `start` returned."""


def training_data(
    loader: Any,
    *,
    rank: int,
    size: int,
    seed: int,
    records_per_epoch: int = 0,
) -> TrainingStream:
    """Return this rank's share of the batches of a training data loader.

    Batch i of the sequence of all epochs' batches belongs to rank i % size. If the loader's samplers split the batches
    among ``size`` ranks themselves, as torch's `DistributedSampler` and those of `det_torch.samplers` do, the loader
    yields exactly this rank's share.

    Args:
        loader: the data loader.
        rank: rank of this slot, from 0.
        size: number of ranks.
        seed: seed of all randomness in the data, the same on all ranks.
        records_per_epoch: number of records per epoch over all ranks, used if the loader has no length. 0 if unknown.

    Raises:
        InvalidTrial: the loader cannot be used. The message contains the reason.
    """
    length = _checked_length(loader, _TRAINING_METHOD)
    shares = _shares(loader, size)
    own = range(rank, sys.maxsize, size)
    if length is not None:
        epoch_len: int | None = math.ceil(length * shares / size)
    else:
        epoch_len = max(records_per_epoch // (size * (loader.batch_size or 1)), 1) if records_per_epoch else None
    if _is_numbered(loader):
        return _NumberedStream(loader, own, shares, seed, epoch_len, _layout(loader, shares, size))
    return _PassStream(PassLoader(loader, seed=seed), own if shares == 1 else range(sys.maxsize), epoch_len)


def check_resizable(stream: TrainingStream, *, batch_size: int, size: int) -> None:
    """Check that any number of ranks trains the same records in each step.

    Args:
        stream: the training data of an elastic trial.
        batch_size: number of records per batch that each of the present ranks must have.
        size: number of ranks at present.

    Raises:
        InvalidTrial: this is not certain. The message contains the reason.
    """
    layout = stream.layout
    if layout is None:
        reason = "must have a dataset with __getitem__, a batch_size, and no sampler that divides records among slots"
    elif layout.batch_size != batch_size:
        reason = (
            f"has batch_size {layout.batch_size}; expected context.get_per_slot_batch_size(), which is {batch_size}"
        )
    elif layout.drop_last and layout.length % (batch_size * size):
        reason = (
            f"has drop_last, and {layout.length} records are not a multiple of global_batch_size {batch_size * size}, "
            "so the number of slots would decide how many are left out; remove drop_last"
        )
    else:
        return
    raise InvalidTrial(f"the trial is elastic (resources.min_slots_per_trial), but its training data loader {reason}")


class UnmanagedStream:
    """Stream of a loader that shuffles, skips and splits its batches among ranks by itself.

    A loader that ends is read again, as the next epoch.

    Args:
        loader: the data loader.

    Raises:
        InvalidTrial: ``loader`` is not a data loader, or it is empty.
    """

    layout: BatchLayout | None = None

    def __init__(self, loader: Any) -> None:
        self.batches_per_epoch = _checked_length(loader, _TRAINING_METHOD)
        self._loader = loader

    def start(self, number: int, state: Any | None, position: Mapping[str, int] | None = None) -> Iterator[Any]:
        return _again_and_again(self._loader, iter(self._loader))

    def state(self) -> None:
        return None

    def close(self) -> None:
        """Do nothing, because torch stops the data workers when the iterator is deleted."""


def validation_data(loader: Any, *, rank: int, size: int, seed: int, whole: bool) -> tuple[Iterable[Any], int | None]:
    """Return this rank's share of the batches of a validation data loader.

    The batches of the first epoch can be iterated any number of times, with the same result each time.

    Args:
        loader: the data loader.
        rank: rank of this slot, from 0.
        size: number of ranks.
        seed: seed of all randomness in the data, the same on all ranks.
        whole: whether to return all batches of the loader, not a share of them.

    Returns:
        The batches, and the number of batches of all ranks together, or None if it is unknown.

    Raises:
        InvalidTrial: the loader cannot be used. The message contains the reason. Iterating the batches raises the
            errors of `TrainingStream.start`.
    """
    length = _checked_length(loader, "build_validation_data_loader")
    shares = _shares(loader, size)
    total = None if length is None else length * shares
    everything = whole and shares == 1
    if _is_numbered(loader):
        own = slice(None) if everything else slice(rank, None, size)
        return read_batches(loader, own, seed=seed, shares=shares), total
    rank, size = (0, 1) if whole or shares > 1 else (rank, size)
    return _OnePass(loader, rank, size, seed), total


class _NumberedStream:
    """Stream of batches that can be read by number, and therefore has no state."""

    def __init__(
        self,
        loader: Any,
        own: range,
        shares: int,
        seed: int,
        batches_per_epoch: int | None,
        layout: BatchLayout | None,
    ) -> None:
        self.batches_per_epoch = batches_per_epoch
        self._loader = loader
        self._own = own
        self._shares = shares
        self._seed = seed
        self.layout = layout
        self._batches: Generator[Any] | None = None

    def start(self, number: int, state: Any | None, position: Mapping[str, int] | None = None) -> Iterator[Any]:
        self.close()
        if self.layout and position:
            self.layout = self.layout.continued(position, number)
        numbers = self._own[number:]
        self._batches = _each(
            read_batches(self._loader, numbers, seed=self._seed, shares=self._shares, layout=self.layout)
        )
        return self._batches

    def state(self) -> None:
        return None

    def close(self) -> None:
        if self._batches is not None:
            self._batches.close()


@dataclass
class _Place:
    """Position in a stream."""

    epoch: int = 0
    """Number of the epoch, from 0."""
    first: int = 0
    """Number of the epoch's first batch among the batches of all ranks and epochs, from 0."""
    done: int = 0
    """Number of batches of the epoch that were read."""


class _PassStream:
    """Stream of batches that can be read only in sequence."""

    layout: BatchLayout | None = None

    def __init__(self, passes: PassLoader, own: range, batches_per_epoch: int | None) -> None:
        self.batches_per_epoch = batches_per_epoch
        self._passes = passes
        self._own = own
        self._place = _Place()
        self._batches: Generator[Any] | None = None

    def start(self, number: int, state: Any | None, position: Mapping[str, int] | None = None) -> Iterator[Any]:
        self.close()
        self._place, dataset = _Place(), None
        if state is not None:
            dataset = state["dataset"]
            self._place = _Place(state["epoch"], state["first"], 0 if dataset is None else state["done"])
        again = self._own[number] - self._place.first - self._place.done
        if again >= _MIN_LOGGED_BATCHES:
            _log.info(
                "reading %d batches again that were trained before; "
                "to avoid this, define state_dict() and load_state_dict() in the dataset",
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


# These generators do not refer to their stream, because a reference cycle would keep its data workers alive.
def _each(loader: Iterable[Any]) -> Generator[Any]:
    yield from loader


def _pass_by_pass(passes: PassLoader, place: _Place, numbers: range, dataset: Any) -> Generator[Any]:
    while True:
        for batch in passes.read(place.epoch, place.done, dataset):
            place.done += 1
            if place.first + place.done - 1 in numbers:
                yield batch
        place.epoch, place.first, place.done, dataset = place.epoch + 1, place.first + place.done, 0, None


def _again_and_again(loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches  # made early, because it may draw random numbers; empty if the last run ended with an epoch
    while True:
        done = 0
        for done, batch in enumerate(loader, 1):  # noqa: B007
            yield batch
        if not done:
            raise InvalidTrial(f"{type(loader).__name__} yielded no batches; expected at least one in every epoch")


class _OnePass:
    """Share of the first pass, which can be iterated repeatedly."""

    def __init__(self, loader: Any, rank: int, size: int, seed: int) -> None:
        self.dataset = loader.dataset
        self._loader = loader
        self._passes = PassLoader(loader, seed=seed)
        self._rank = rank
        self._size = size

    def __iter__(self) -> Iterator[Any]:
        return islice(self._passes.read(0), self._rank, None, self._size)

    def __len__(self) -> int:
        return len(range(self._rank, len(self._loader), self._size))


def _checked_length(loader: Any, method: str) -> int | None:
    """Return the number of batches per epoch of a loader, or None if the loader has no length.

    Raises:
        InvalidTrial: the loader cannot be used.
    """
    if not isinstance(loader, torch.utils.data.DataLoader):
        raise InvalidTrial(f"{method}() returned {loader!r}; expected a det_torch.DataLoader")
    length = pass_length(loader)
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


def dataset_length(loader: Any) -> int | None:
    """Return the number of records of a loader's dataset, or None if the dataset has no length."""
    try:
        return len(loader.dataset)
    except (TypeError, AttributeError, NotImplementedError):
        return None


def _is_numbered(loader: Any) -> bool:
    return torch_iterates(loader) and not isinstance(loader.dataset, torch.utils.data.IterableDataset)


def _layout(loader: Any, shares: int, size: int) -> BatchLayout | None:
    """Return the division of the records into batches, or None if the loader's own samplers divide them."""
    sampler = loader.batch_sampler
    if shares > 1 or type(sampler) is not torch.utils.data.BatchSampler:
        return None
    return BatchLayout(
        length=len(cast(Sized, sampler.sampler)),
        batch_size=sampler.batch_size,
        drop_last=sampler.drop_last,
        slots=size,
    )


def _shares(loader: Any, size: int) -> int:
    """Return the number of ranks among which the loader's samplers split its batches, which is 1 or all."""
    return size if any(getattr(part, "num_replicas", 1) == size for part in iterate_samplers(loader)) else 1


def to_device(data: Any, device: torch.device, warned_types: set[type] | None = None) -> Any:
    """Move data to a device. Tensors in pinned memory are copied asynchronously.

    Args:
        data: objects with a method ``to``, such as tensors, in nested dicts, lists and tuples. Numeric arrays become
            tensors. Other objects are returned unchanged.
        device: the device.
        warned_types: types of objects that are returned unchanged without a warning. Each further type is added to the
            set after a warning about it. None means no warnings.
    """
    if type(data) is list:  # fast path for most batches, as the checks below take as long as the transfer
        moved = []
        for value in data:
            is_there = type(value) is torch.Tensor and value.device == device
            moved.append(value if is_there else to_device(value, device, warned_types))
        return moved
    if isinstance(data, torch.Tensor) and data.device == device:
        return data
    if isinstance(data, (torch.Tensor, PackedSequence)):
        # Copies to the CPU must block, because nothing would wait for them before their values are used.
        return cast(Any, data).to(device, non_blocking=device.type != "cpu")
    if hasattr(data, "to"):  # batches of other libraries
        return data.to(device)
    if isinstance(data, dict):
        return {key: to_device(value, device, warned_types) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        moved = [to_device(value, device, warned_types) for value in data]
        if isinstance(data, list):
            return moved
        return type(data)(*moved) if hasattr(data, "_fields") else tuple(moved)
    if isinstance(data, np.ndarray) and data.dtype.kind in _NUMERIC:
        # torch rejects negative strides and warns about read-only memory.
        return torch.from_numpy(np.require(data, requirements=["C", "W"])).to(device)
    if warned_types is not None and type(data) not in warned_types:
        warned_types.add(type(data))
        _log.warning("%s cannot be moved to the device %s and is used as it is", type(data).__name__, device)
    return data
