"""Launch of Horovod's workers on one host or several.

det does not use ``horovodrun``, because it needs ssh, puts the whole environment with its secrets on command lines that
all users of a host can read, chooses its own ports, and prefixes log lines in a form that has no rank for det. For jobs
that are not elastic, it does little else. `det_horovod._launcher` does that on every node.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from pydantic import BaseModel

from det_core.errors import LaunchError
from det_core.interfaces.backend import Backend, NodePlacement, WorkerCommand, WorkerRanks
from det_core.launch.network import interface_variables, listening_address

_RANKS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
_INTERFACES = ("HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME")


class Horovod(Backend):
    """Backend that starts one launcher on each node. That of the first node serves the rendezvous at the place's port.

    Args:
        options: empty, because Horovod's settings are in the config's ``optimizations``.
    """

    def __init__(self, options: BaseModel) -> None:
        pass

    def start(self, place: NodePlacement, worker: Sequence[str]) -> WorkerCommand:
        if find_spec("horovod") is None:
            raise LaunchError("Horovod is not installed here; build it with: python -m det_horovod.build")
        nodes, here = len(place.hosts), listening_address(place)
        environment = {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": place.hosts[0] if place.node else here,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(place.port),
            "HOROVOD_SIZE": str(nodes * place.slots),
            "HOROVOD_LOCAL_SIZE": str(place.slots),
            "HOROVOD_CROSS_RANK": str(place.node),
            "HOROVOD_CROSS_SIZE": str(nodes),
            **interface_variables(_INTERFACES, here),
        }
        return WorkerCommand(argv=[sys.executable, "-m", "det_horovod._launcher", *worker], env=environment)

    def ranks(self) -> WorkerRanks:
        names = {name: f"HOROVOD_{name.upper()}" for name in _RANKS}
        try:
            return WorkerRanks(**{name: int(os.environ[variable]) for name, variable in names.items()})
        except (KeyError, ValueError) as error:
            raise LaunchError(
                f"this process is not a Horovod worker: {error} of {', '.join(names.values())} is not set to a number; "
                "start it with: python -m det_core.launch horovod --slots 2 -- script.py"
            ) from error
