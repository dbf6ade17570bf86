"""Launch of workers with torchrun, for backends that use torch.distributed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from det_core.errors import LaunchError
from det_core.interfaces.backend import Backend, NodePlacement, WorkerCommand, WorkerRanks
from det_core.launch.network import interface_variables, listening_address

if TYPE_CHECKING:
    from pydantic import BaseModel

RENDEZVOUS = "det"
"""Name of the rendezvous in `det_torch.torchrun_process`."""
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_RANKS = {
    "rank": "RANK",
    "size": "WORLD_SIZE",
    "local_rank": "LOCAL_RANK",
    "local_size": "LOCAL_WORLD_SIZE",
    "cross_rank": "GROUP_RANK",
    "cross_size": "GROUP_WORLD_SIZE",
}
"""Mapping of arguments of `WorkerRanks` to environment variables that torchrun sets."""


class Torchrun(Backend):
    """Backend that starts workers with torchrun.

    torchrun listens on loopback, or at the addresses of the hosts if there are several nodes.
    """

    def __init__(self, options: BaseModel) -> None:
        """Ignore the options, because they concern the training only."""

    def start(self, place: NodePlacement, worker: Sequence[str]) -> WorkerCommand:
        here = listening_address(place)
        chief = place.hosts[0] if place.node else here
        arguments = {
            "nnodes": len(place.hosts),
            "nproc-per-node": place.slots,
            "rdzv-backend": RENDEZVOUS,
            "rdzv-endpoint": f"[{chief}]:{place.port}" if ":" in chief else f"{chief}:{place.port}",
            "rdzv-conf": f"rank={place.node}",
            "max-restarts": 0,
            "log-dir": place.directory,
        }
        options = [f"--{name}={value}" for name, value in arguments.items()]
        argv = [sys.executable, "-m", "det_torch.torchrun_process", *options, "--no-python", *worker]
        # DeepSpeed's launcher sets these variables, and scripts for it read them.
        ours = {"LOCAL_SIZE": place.slots, "CROSS_RANK": place.node, "CROSS_SIZE": len(place.hosts)}
        env = {name: str(value) for name, value in ours.items()}
        return WorkerCommand(argv=argv, env={**env, **interface_variables(_INTERFACES, here)})

    def ranks(self) -> WorkerRanks:
        try:
            return WorkerRanks(**{name: int(os.environ[variable]) for name, variable in _RANKS.items()})
        except (KeyError, ValueError) as error:
            raise LaunchError(
                f"torchrun did not start this process: {', '.join(_RANKS.values())} must be numbers ({error!r}); "
                "start it with: python -m det_core.launch BACKEND --slots 2 -- script.py"
            ) from error
