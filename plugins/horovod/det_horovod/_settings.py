"""How Horovod begins and ends in a worker, for every framework."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from det_core.config import ExperimentConfig
from det_core.core import DistributedContext
from det_core.errors import LaunchError, PeerLost
from det_core.launch import backends

_FOREVER = 365 * 24 * 3600
_SECONDS_TO_LEAVE = 5.0


def environment(config: ExperimentConfig, timeout: float | None) -> Mapping[str, str]:
    """What Horovod reads when it begins.

    Args:
        config: whose ``optimizations`` it follows.
        timeout: seconds to wait for a slot that does not answer; None = forever.
    """
    optimizations = config.optimizations
    values = {
        "HOROVOD_FUSION_THRESHOLD": optimizations.tensor_fusion_threshold << 20,
        "HOROVOD_CYCLE_TIME": optimizations.tensor_fusion_cycle_time,
        "HOROVOD_DISABLE_GROUP_FUSION": 1,  # so that a group is added up in the same order at all times
        "HOROVOD_AUTOTUNE": int(optimizations.auto_tune_tensor_fusion),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": math.ceil(timeout) if timeout else _FOREVER,
    }
    return {name: str(value) for name, value in values.items()}


def begin(hvd: Any, config: ExperimentConfig, distributed: DistributedContext) -> bool:
    """Initialize Horovod unless the script has; variables that are set in the environment stay as they are.

    Args:
        hvd: the module, such as ``horovod.torch``.

    Returns:
        Whether it was not yet initialized.

    Raises:
        LaunchError: it knows of other ranks than det.
    """
    begins = not hvd.is_initialized()
    if begins:
        for name, value in environment(config, backends.block().get("timeout")).items():
            os.environ.setdefault(name, value)
        hvd.init()
    found, expected = (hvd.rank(), hvd.size()), (distributed.rank, distributed.size)
    if found != expected:
        raise LaunchError(
            f"for Horovod this is rank {found[0]} of {found[1]}, for det rank {expected[0]} of {expected[1]}; start "
            "the workers with: python -m det_core.launch horovod --slots 2 -- script.py"
        )
    return begins


def end(hvd: Any) -> None:
    """Shut down. This waits for the other slots, but not for long, since they may be gone or stuck."""
    ending = threading.Thread(target=hvd.shutdown, daemon=True)
    ending.start()
    ending.join(_SECONDS_TO_LEAVE)


@contextmanager
def losing_peers(error: type[Exception], mark: str = "") -> Iterator[None]:
    """Errors of this class whose text has ``mark`` become `PeerLost`: Horovod could not go on."""
    try:
        yield
    except error as raised:
        if mark not in str(raised):
            raise
        raise PeerLost(f"Horovod cannot go on with the other slots: {raised}") from raised
