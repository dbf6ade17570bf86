"""Process group of torch.distributed for the slots of a trial."""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from det_core.errors import DetError, PeerLost
from det_core.launch import backends

_log = logging.getLogger("det.torch")
_CLOSE_TIMEOUT = 30
"""Time limit of `ProcessGroup.close`."""
_FOREVER = timedelta(days=365)
_TRANSPORTS = {"cuda": "nccl"}
"""Mapping of device types to backends of torch.distributed. The default is gloo."""

_LOST = re.compile(r"gloo/.*(timed out|timeout|closed|reset|refused|broken)", re.IGNORECASE | re.DOTALL)


class ProcessGroup:
    """The script's process group if it has made one, otherwise a new process group that lasts until `close`.

    Args:
        device: device on which this slot trains.
    """

    def __init__(self, device: torch.device) -> None:
        self._owned = not dist.is_initialized()
        if self._owned:
            seconds = backends.distributed_block().get("timeout")
            dist.init_process_group(
                _TRANSPORTS.get(device.type, "gloo"),
                timeout=timedelta(seconds=seconds) if seconds else _FOREVER,
                device_id=device if device.type == "cuda" else None,
            )

    def close(self) -> None:
        """Close the group, within a time limit, unless the script made it.

        After an error the operations of GPUs are aborted, because they may wait for other slots forever.
        """
        if not self._owned:
            return
        aborts = sys.exc_info()[0] is not None and dist.get_backend() == "nccl"
        leave = dist.distributed_c10d._abort_process_group if aborts else dist.destroy_process_group
        if not finishes_within(_CLOSE_TIMEOUT, leave):
            _log.warning("the process group of the slots did not close within %d s and is left open", _CLOSE_TIMEOUT)


def finishes_within(seconds: float, work: Callable[[], object]) -> bool:
    """Run a function on a separate thread and return whether it ended in time.

    Args:
        seconds: time limit.
        work: function to run. An exception that it raises in time is raised here.
    """
    ended: Future[object] = Future()

    def run() -> None:
        try:
            ended.set_result(work())
        except Exception as error:  # noqa: BLE001  (the caller raises it)
            ended.set_exception(error)

    threading.Thread(target=run, name="det-limited", daemon=True).start()
    if not wait([ended], seconds).done:
        return False
    ended.result()
    return True


@contextmanager
def translate_gloo_errors() -> Iterator[None]:
    """Replace gloo's errors about other slots by `PeerLost`.

    Raises:
        PeerLost: an error of gloo in the block says that another slot is lost.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, DetError) or not _LOST.search(str(error)):
            raise
        raise PeerLost(f"torch.distributed lost another slot: {error}") from error


@torch.no_grad()
def broadcast_tensors(tensors: Iterable[torch.Tensor]) -> None:
    """Copy the chief's values to the tensors of all slots. Tensors may have any memory layout.

    Args:
        tensors: tensors to overwrite, in the same order on all slots.
    """
    for tensor in tensors:
        for dimension, stride in enumerate(tensor.stride()):
            if stride == 0 and tensor.size(dimension) > 1:  # an expanded dimension, which has one element in memory
                tensor = tensor.narrow(dimension, 0, 1)
        # Transports send raw memory. NCCL rejects tensors with gaps, and gloo overwrites the content of gaps.
        whole = tensor.contiguous()
        dist.broadcast(whole, src=0)
        if whole.data_ptr() != tensor.data_ptr():
            tensor.copy_(whole)
