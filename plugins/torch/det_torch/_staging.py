"""Copies of a state in host memory that is used again and again, so that training may go on while one is written."""

from __future__ import annotations

import copy
import logging
from collections import OrderedDict
from typing import Any

import torch

_log = logging.getLogger("det.torch")


def identity(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what two tensors have in common if they are one: the memory, and how it is read."""
    return (
        tensor.untyped_storage().data_ptr(),
        tensor.storage_offset(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.is_conj(),
        tensor.is_neg(),
    )


class Staging:
    """Copies states. The copy lasts until the next one: both live in the same buffers.

    The buffers take as much host memory as the state's tensors do, from the first copy on; they are page-locked for
    tensors of a GPU, if the host allows that, so that the transfer runs at the speed of the bus.
    """

    def __init__(self) -> None:
        self._memory = HostMemory()
        self._buffers: list[torch.Tensor] = []

    def copy(self, state: Any) -> Any:
        """A deep copy whose tensors are on the CPU. A tensor that the state has twice, the copy has twice too."""
        round_ = _Round(self._memory, self._buffers)
        copied = round_.copy(state)
        self._buffers = round_.used
        for device in round_.devices:
            torch.cuda.synchronize(device)
        return copied


class HostMemory:
    """Allocator of buffers, which tries page-locked memory until there is none left."""

    def __init__(self) -> None:
        self._locks = True

    def like(self, tensor: torch.Tensor, *, lock: bool) -> torch.Tensor:
        """Return a buffer on the CPU with the layout of a tensor, page-locked if ``lock`` and possible."""
        if lock and self._locks:
            try:
                return torch.empty_like(tensor, device="cpu", pin_memory=True)
            except RuntimeError as error:
                self._locks = False
                _log.warning("checkpoints are copied more slowly, since page-locked host memory is refused: %s", error)
        return torch.empty_like(tensor, device="cpu")


class _Round:
    def __init__(self, memory: HostMemory, buffers: list[torch.Tensor]) -> None:
        self._memory = memory
        self._free = iter(buffers)
        self._copies: dict[Any, torch.Tensor] = {}
        self.used: list[torch.Tensor] = []
        self.devices: set[torch.device] = set()
        """GPUs that may still be copying."""

    def copy(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value.detach())
        if isinstance(value, OrderedDict):
            copied = type(value)((key, self.copy(item)) for key, item in value.items())
            vars(copied).update(copy.deepcopy(vars(value)))  # a module's state_dict() keeps its versions there
            return copied
        if isinstance(value, dict):
            return type(value)({key: self.copy(item) for key, item in value.items()})
        if isinstance(value, (list, tuple)):
            return type(value)(self.copy(item) for item in value)
        return copy.copy(value) if isinstance(value, (set, bytearray)) else value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided:
            return tensor.cpu().clone()
        key = identity(tensor)
        if tensor.numel() == 0 or key not in self._copies:
            self._copies[key] = self._buffer(tensor).copy_(tensor, non_blocking=tensor.is_cuda)
            if tensor.is_cuda:
                self.devices.add(tensor.device)
        return self._copies[key]

    def _buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        buffer = next(self._free, None)
        if buffer is None or (buffer.shape, buffer.stride(), buffer.dtype) != (
            tensor.shape,
            tensor.stride(),
            tensor.dtype,
        ):
            buffer = self._memory.like(tensor, lock=tensor.is_cuda)
        self.used.append(buffer)
        return buffer
