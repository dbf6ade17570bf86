"""Copies of a state in reused host memory, so that training continues while a checkpoint is written."""

from __future__ import annotations

import copy
import logging
import mmap
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import torch

_ALIGNMENT = 64
"""Alignment of tensors in a block, in bytes."""
_FOR_ALL_GPUS = 1
"""Value of ``cudaHostRegisterPortable``."""
_Lock: TypeAlias = Callable[[int, int], Callable[[], object]]

_log = logging.getLogger("det.torch")


def tensor_identity(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return a key that is equal for two tensors if they are the same view of the same memory."""
    return (
        tensor.untyped_storage().data_ptr(),
        tensor.storage_offset(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.is_conj(),
        tensor.is_neg(),
    )


def wraps_tensors(tensor: torch.Tensor) -> bool:
    """Return whether a tensor consists of others and has no memory of its own, like many quantized tensors."""
    return hasattr(tensor, "__tensor_flatten__")


class HostStaging:
    """Copier of states with reused buffers. A copy is valid until the next one, which overwrites it.

    From the first copy on, the buffers take as much host memory as the state's tensors. Buffers of GPU tensors are
    page-locked if the host allows it, so that the transfer runs at the speed of the bus. Page-locked buffers of small
    tensors take up to 10 % more, and 16 MiB.
    """

    def __init__(self) -> None:
        self._memory = HostMemory()
        self._buffers: list[torch.Tensor] = []

    def copy(self, state: Any) -> Any:
        """Return a deep copy whose tensors are on the CPU. Places that share a tensor share its copy."""
        round_ = _StagedCopy(self._memory, self._buffers)
        copied = round_.copy(state)
        self._buffers = round_.used
        for device in round_.devices:
            torch.cuda.synchronize(device)
        return copied


class HostMemory:
    """Allocator of buffers that uses page-locked memory until the host refuses it.

    torch's allocator of page-locked memory is not used, because it rounds each allocation up to a power of two. Here a
    tensor of ``LARGE`` bytes or more has its own pages, and smaller tensors share blocks of ``BLOCK`` bytes.

    Args:
        lock: function that page-locks memory, given as ``(address, size)``, and returns a function that unlocks it.
            It raises RuntimeError on failure. By default memory is locked for all GPUs.
    """

    LARGE = 1 << 20
    BLOCK = 1 << 24

    def __init__(self, lock: _Lock | None = None) -> None:
        self._lock = lock or _lock_for_gpus
        self._locks = True
        self._block, self._used = memoryview(b""), 0
        """Latest block, and the number of its bytes in use."""

    def like(self, tensor: torch.Tensor, *, lock: bool) -> torch.Tensor:
        """Return a buffer on the CPU with the layout of a tensor.

        Args:
            tensor: tensor whose shape, strides and dtype the buffer has.
            lock: whether to page-lock the buffer if possible.
        """
        if lock and self._locks and tensor.numel():
            try:
                return self._locked_like(torch.empty_like(tensor, device="meta"))
            except (RuntimeError, OSError) as error:
                self._locks = False
                _log.warning(
                    "checkpoints are copied more slowly, because the host refused page-locked memory: %s", error
                )
        return torch.empty_like(tensor, device="cpu")

    def _locked_like(self, layout: torch.Tensor) -> torch.Tensor:
        pages, offset = self._take(layout.nbytes)
        # Each tensor gets its own storage, because torch.save() writes whole storages.
        flat = torch.frombuffer(pages, dtype=layout.dtype, count=layout.numel(), offset=offset)
        return flat.as_strided(layout.shape, layout.stride())

    def _take(self, size: int) -> tuple[memoryview, int]:
        """Return memory and an offset in it with ``size`` free bytes."""
        if size >= self.LARGE:
            return _locked_pages(size, self._lock), 0
        offset = -(-self._used // _ALIGNMENT) * _ALIGNMENT
        if offset + size > len(self._block):
            self._block, offset = _locked_pages(self.BLOCK, self._lock), 0
        self._used = offset + size
        return self._block, offset


def _locked_pages(size: int, lock: _Lock) -> memoryview:
    """Return pages that stay locked during the lifetime of the view. Tensors made of the view keep it alive."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_DONTFORK)  # otherwise data workers would get copies of locked pages
    view = memoryview(memory)
    address = torch.frombuffer(view, dtype=torch.uint8).data_ptr()
    # The finalizer keeps a reference to the memory, so that the memory is unmapped only after it is unlocked.
    finalizer = weakref.finalize(view, _unlock, lock(address, size), memory)
    finalizer.atexit = False
    return view


def _unlock(undo: Callable[[], object], _: mmap.mmap) -> None:
    undo()


def _lock_for_gpus(address: int, size: int) -> Callable[[], object]:
    cuda: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    if error := int(cuda.cudaHostRegister(address, size, _FOR_ALL_GPUS)):
        # CUDA would report this error again after the next kernel, so run one here.
        with suppress(RuntimeError):
            torch.empty(1, device="cuda").fill_(0)
        raise torch.cuda.CudaError(error)
    return partial(cuda.cudaHostUnregister, address)


class _StagedCopy:
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
            vars(copied).update(copy.deepcopy(vars(value)))  # a module's state_dict() keeps versions in an attribute
            return copied
        if isinstance(value, dict):
            return type(value)({key: self.copy(item) for key, item in value.items()})
        if isinstance(value, (list, tuple)):
            return type(value)(self.copy(item) for item in value)
        return copy.copy(value) if isinstance(value, (set, bytearray)) else value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided or wraps_tensors(tensor):
            return tensor.cpu().clone()
        key = tensor_identity(tensor)
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
