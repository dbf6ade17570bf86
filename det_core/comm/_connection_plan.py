"""Plan of the connections between workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from det_core.comm._ranks import Ranks


class PeerRole(NamedTuple):
    """Role in which a worker connects to a peer.

    Attributes:
        role: ``local`` for a worker of the same machine, ``machine`` for the first worker of another machine, ``rank``
            for any worker, or ``ring`` for the previous machine in the ring.
        number: number of the worker or machine among those with this role.
    """

    role: str
    number: int

    def __str__(self) -> str:
        return f"{self.role} {self.number}"


class OutgoingLink(NamedTuple):
    """Outgoing connection of a worker.

    Attributes:
        door: name of the transport, ``local`` or ``machines``.
        machine: number of the machine whose first worker listens.
        seat: role of the connecting worker.
    """

    door: str
    machine: int
    seat: PeerRole


@dataclass(frozen=True)
class ConnectionPlan:
    """Connections of one worker.

    Attributes:
        doors: roles of the peers that connect to this worker, by transport.
        ways: connections that this worker makes.
    """

    doors: dict[str, list[PeerRole]]
    ways: list[OutgoingLink]


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
    ways = [] if is_chief else [OutgoingLink("machines", 0, PeerRole("machine", ranks.cross_rank))]
    if ring and machines > 1:
        others.append(PeerRole("ring", (ranks.cross_rank - 1) % machines))
        ways.append(OutgoingLink("machines", (ranks.cross_rank + 1) % machines, PeerRole("ring", ranks.cross_rank)))
    return ConnectionPlan({door: seats for door, seats in (("local", local), ("machines", others)) if seats}, ways)


def plan_direct(ranks: Ranks) -> ConnectionPlan:
    """Plan the connections of a worker if all workers connect to the chief."""
    if ranks.rank == 0:
        return ConnectionPlan({"machines": [PeerRole("rank", rank) for rank in range(1, ranks.size)]}, [])
    return ConnectionPlan({}, [OutgoingLink("machines", 0, PeerRole("rank", ranks.rank))])


def describe_missing_peers(seats: list[PeerRole], ranks: Ranks) -> tuple[str, int]:
    """Return the names of missing workers, and the lowest rank among them.

    Args:
        seats: the roles that are missing, at least one.
        ranks: place in the job of the worker to which they should have connected.
    """
    first = {"rank": 0, "local": ranks.rank, "machine": 0, "ring": 0}
    step = {"rank": 1, "local": 1, "machine": ranks.local_size, "ring": ranks.local_size}
    # The ranks of missing workers are unknown, but launchers number workers machine by machine.
    missing = sorted((first[seat.role] + step[seat.role] * seat.number, seat) for seat in seats)
    names = [f"rank {rank}" if seat.role == "rank" else f"rank {rank} ({seat})" for rank, seat in missing]
    return ", ".join(names), missing[0][0]
