"""Initialization and shutdown of Horovod in a worker, for all frameworks."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from det_core.core import DistributedContext
from det_core.errors import LaunchError, PeerLost
from det_core.launch import backends

_FOREVER = 365 * 24 * 3600
_SHUTDOWN_TIMEOUT = 5.0


def horovod_environment(optimizations: Mapping[str, Any], timeout: float | None) -> Mapping[str, str]:
    """Return the environment variables that configure Horovod.

    Args:
        optimizations: the block of the complete experiment config.
        timeout: seconds to wait for a slot that does not answer, or None to wait forever.
    """
    values = {
        "HOROVOD_FUSION_THRESHOLD": optimizations["tensor_fusion_threshold"] << 20,
        "HOROVOD_CYCLE_TIME": optimizations["tensor_fusion_cycle_time"],
        "HOROVOD_DISABLE_GROUP_FUSION": 1,  # so that the order of sums within a group is fixed
        "HOROVOD_AUTOTUNE": int(optimizations["auto_tune_tensor_fusion"]),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": math.ceil(timeout) if timeout else _FOREVER,
    }
    return {name: str(value) for name, value in values.items()}


def start_horovod(hvd: Any, optimizations: Mapping[str, Any], distributed: DistributedContext) -> bool:
    """Initialize Horovod unless the script already has. Variables that are set in the environment take precedence.

    Args:
        hvd: the module, such as ``horovod.torch``.
        optimizations: the block of the complete experiment config.
        distributed: det's ranks.

    Returns:
        Whether this call initialized it.

    Raises:
        LaunchError: Horovod's ranks differ from det's.
    """
    begins = not hvd.is_initialized()
    if begins:
        for name, value in horovod_environment(optimizations, backends.distributed_block().get("timeout")).items():
            os.environ.setdefault(name, value)
        hvd.init()
    found, expected = (hvd.rank(), hvd.size()), (distributed.rank, distributed.size)
    if found != expected:
        raise LaunchError(
            f"this process is rank {found[0]} of {found[1]} for Horovod, but rank {expected[0]} of {expected[1]} for "
            "det; start the workers with: python -m det_core.launch horovod --slots 2 -- script.py"
        )
    return begins


def stop_horovod(hvd: Any) -> None:
    """Shut Horovod down. The wait for the other slots is limited, because they may be gone or stuck."""
    ending = threading.Thread(target=hvd.shutdown, daemon=True)
    ending.start()
    ending.join(_SHUTDOWN_TIMEOUT)


@contextmanager
def translate_horovod_errors(error: type[Exception], mark: str = "") -> Iterator[None]:
    """Turn errors of this class whose text contains ``mark`` into `PeerLost`."""
    try:
        yield
    except error as raised:
        if mark not in str(raised):
            raise
        raise PeerLost(f"Horovod cannot continue with the other slots: {raised}") from raised
