"""torchrun as it starts the workers of a trial, for backends that meet by torch.distributed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from det_core.errors import LaunchError
from det_core.interfaces.backend import Backend, Place, Ranks, Start

if TYPE_CHECKING:
    from pydantic import BaseModel

_SECONDS_TO_LEAVE = 5
"""For the other workers, once one failed; then they are killed."""
_RANKS = {
    "rank": "RANK",
    "size": "WORLD_SIZE",
    "local_rank": "LOCAL_RANK",
    "local_size": "LOCAL_WORLD_SIZE",
    "cross_rank": "GROUP_RANK",
    "cross_size": "GROUP_WORLD_SIZE",
}
"""Argument of `Ranks` -> the environment variable that torchrun sets."""


class Torchrun(Backend):
    """Starts workers by ``python -m torch.distributed.run``, which must be given the same on all nodes."""

    def __init__(self, options: BaseModel) -> None:
        """The options concern the training only."""

    def start(self, place: Place, worker: Sequence[str]) -> Start:
        arguments = {
            "nnodes": len(place.hosts),
            "node-rank": place.node,
            "nproc-per-node": place.slots,
            "rdzv-backend": "static",
            "master-addr": place.hosts[0],
            "master-port": place.port,
            "max-restarts": 0,
            "shutdown-timeout": _SECONDS_TO_LEAVE,
            "log-dir": place.directory,
            "tee": 3,
        }
        options = [f"--{name}={value}" for name, value in arguments.items()]
        argv = [sys.executable, "-m", "torch.distributed.run", *options, "--no-python", *worker]
        # Gloo otherwise listens on the interface that the host's own name leads to, if it leads to any.
        env = {"GLOO_SOCKET_IFNAME": "lo"} if len(place.hosts) == 1 and sys.platform == "linux" else {}
        return Start(argv=argv, env=env)

    def ranks(self) -> Ranks:
        try:
            return Ranks(**{name: int(os.environ[variable]) for name, variable in _RANKS.items()})
        except (KeyError, ValueError) as error:
            raise LaunchError(
                f"torchrun did not start this process: {error} of {', '.join(_RANKS.values())} is not set to a number; "
                "start it with: python -m det_core.launch BACKEND --slots 2 -- script.py"
            ) from error
