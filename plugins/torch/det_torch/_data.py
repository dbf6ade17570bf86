"""What a trial returns its data in, and how batches get to the device."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import torch
import torch.utils.data

from det_core.errors import InvalidTrial

TorchData: TypeAlias = dict[str, Any] | Sequence[Any] | torch.Tensor
"""A batch as trials get it: a tensor, or a dict, list or tuple of them, nested at will."""

_T_co = TypeVar("_T_co", covariant=True)
_NUMERIC = "biufc"


class DataLoader(torch.utils.data.DataLoader[_T_co]):
    """`torch.utils.data.DataLoader`, argument for argument; return one from ``build_*_data_loader``.

    Batches may be ``np.ndarray``, ``torch.Tensor``, or tuples, lists and dicts of them, nested at will.

    By itself it iterates like torch's. Under det, training goes through it again and again, each
    worker reading its own share of the batches, in an order that is a function of the trial's seed and
    the epoch alone: a sampler or batch sampler of your own gets ``set_epoch`` if it has it, its
    ``generator`` is reseeded, and it draws from seeded global generators. Data workers are
    reseeded for every batch. So a resumed trial sees exactly the batches it would have seen,
    random augmentation included, provided that the dataset (of map style) draws from the global
    generators of Python, numpy or torch, not from one of its own.
    """


def check_loader(loader: Any, method: str) -> torch.utils.data.DataLoader[Any]:
    """The loader, if training can use it.

    Args:
        method: what returned it, for messages.

    Raises:
        InvalidTrial: it is something else, iterates in its own way, has no length or no batches, or streams.
    """
    if not isinstance(loader, torch.utils.data.DataLoader):
        raise InvalidTrial(f"{method}() returned {loader!r}; expected a det_torch.DataLoader")
    if type(loader).__iter__ is not torch.utils.data.DataLoader.__iter__:
        raise InvalidTrial(
            f"{method}() returned a {type(loader).__name__}, which overrides __iter__; det reads its dataset, samplers "
            "and collate_fn by itself, so do there what __iter__ does"
        )
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        raise InvalidTrial(
            f"{method}() returned a loader over an IterableDataset, which comes with a later release; "
            "use a dataset with __getitem__ and __len__"
        )
    try:
        batches = len(loader)
    except TypeError as error:
        raise InvalidTrial(f"{method}() returned a data loader without a length: {error}; add __len__") from error
    if batches == 0:
        raise InvalidTrial(
            f"{method}() returned a data loader of length 0: {len(cast(Sized, loader.dataset))} records, "
            f"batch_size {loader.batch_size}, drop_last {loader.drop_last}; expected at least one batch"
        )
    return loader


def to_device(data: Any, device: torch.device) -> Any:
    """Move what has a method ``to`` within nested dicts, lists and tuples; numeric arrays become tensors."""
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True)
    if hasattr(data, "to"):  # PackedSequence, and the batches of other libraries
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
