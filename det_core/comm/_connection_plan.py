"""Plan of the connections between workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from det_core.comm._ranks import Ranks


class PeerRole(NamedTuple):
    """Role in which a worker connects to a peer.

    Attributes:
        kind: ``local`` for a worker of the same machine, ``machine`` for the first worker of another machine, ``rank``
            for any worker, or ``ring`` for the previous machine in the ring.
        number: number of the worker or machine among those of this kind.
    """

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


class OutgoingLink(NamedTuple):
    """Outgoing connection of a worker.

    Attributes:
        transport: name of the transport, ``local`` or ``machines``.
        machine: number of the machine whose first worker listens.
        role: role of the connecting worker.
    """

    transport: str
    machine: int
    role: PeerRole


@dataclass(frozen=True)
class ConnectionPlan:
    """Connections of one worker.

    Attributes:
        incoming: roles of the peers that connect to this worker, by transport.
        outgoing: connections that this worker makes.
    """

    incoming: dict[str, list[PeerRole]]
    outgoing: list[OutgoingLink]


def plan_star(ranks: Ranks, *, ring: bool) -> ConnectionPlan:
    """Plan the connections of a worker in a star.

    The workers of a machine connect to its first worker, and the first workers of the machines to the chief.

    Args:
        ranks: place of the worker in the job.
        ring: whether the first workers of the machines also connect to each other in a ring.
    """
    if not ranks.is_hub:
        return ConnectionPlan({}, [OutgoingLink("local", ranks.cross_rank, PeerRole("local", ranks.local_rank))])
    is_chief, machines = ranks.rank == 0, ranks.cross_size
    local = [PeerRole("local", index) for index in range(1, ranks.local_size)]
    others = [PeerRole("machine", index) for index in range(1, machines) if is_chief]
    outgoing = [] if is_chief else [OutgoingLink("machines", 0, PeerRole("machine", ranks.cross_rank))]
    if ring and machines > 1:
        others.append(PeerRole("ring", (ranks.cross_rank - 1) % machines))
        outgoing.append(OutgoingLink("machines", (ranks.cross_rank + 1) % machines, PeerRole("ring", ranks.cross_rank)))
    return ConnectionPlan({name: roles for name, roles in (("local", local), ("machines", others)) if roles}, outgoing)


def plan_direct(ranks: Ranks) -> ConnectionPlan:
    """Plan the connections of a worker if all workers connect to the chief."""
    if ranks.rank == 0:
        return ConnectionPlan({"machines": [PeerRole("rank", rank) for rank in range(1, ranks.size)]}, [])
    return ConnectionPlan({}, [OutgoingLink("machines", 0, PeerRole("rank", ranks.rank))])


def describe_missing_peers(roles: list[PeerRole], ranks: Ranks) -> tuple[str, int]:
    """Return the names of missing workers, and the lowest rank among them.

    Args:
        roles: the roles that are missing, at least one.
        ranks: place in the job of the worker to which they should have connected.
    """
    first = {"rank": 0, "local": ranks.rank, "machine": 0, "ring": 0}
    step = {"rank": 1, "local": 1, "machine": ranks.local_size, "ring": ranks.local_size}
    # The ranks of missing workers are unknown, but launchers number workers machine by machine.
    missing = sorted((first[role.kind] + step[role.kind] * role.number, role) for role in roles)
    names = [f"rank {rank}" if role.kind == "rank" else f"rank {rank} ({role})" for rank, role in missing]
    return ", ".join(names), missing[0][0]
