"""Workers that meet at Horovod's rendezvous, on one host or several.

Horovod's own `horovodrun` is not used. It reaches other hosts by ssh; it puts the whole environment, with its secrets,
on command lines that everybody on the host can read; it chooses its ports itself; and its prefix tells no rank to det.
What it does besides for one job without elastic hosts is little: `det_horovod._launcher`, once on every node.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from pydantic import BaseModel

from det_core.errors import LaunchError
from det_core.interfaces.backend import Backend, Place, Ranks, Start
from det_core.launch.network import interface_variables, listening_address

_RANKS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
_INTERFACES = ("HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME")


class Horovod(Backend):
    """Starts one launcher on each node; the first node's also serves the rendezvous, at the place's port."""

    def __init__(self, options: BaseModel) -> None:
        """There are none: what Horovod can be told is in the config's ``optimizations``."""

    def start(self, place: Place, worker: Sequence[str]) -> Start:
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
        return Start(argv=[sys.executable, "-m", "det_horovod._launcher", *worker], env=environment)

    def ranks(self) -> Ranks:
        names = {name: f"HOROVOD_{name.upper()}" for name in _RANKS}
        try:
            return Ranks(**{name: int(os.environ[variable]) for name, variable in names.items()})
        except (KeyError, ValueError) as error:
            raise LaunchError(
                f"this process is no worker of Horovod: {error} of {', '.join(names.values())} is not set to a number; "
                "start it with: python -m det_core.launch horovod --slots 2 -- script.py"
            ) from error
