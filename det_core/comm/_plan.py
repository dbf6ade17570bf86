"""Who connects to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from det_core.comm._ranks import Ranks


class Seat(NamedTuple):
    """What a worker is to the one that lets it in: its ``local`` worker, ``machine`` or ``rank`` of that number, or
    the neighbour in the ``ring`` of machines.
    """

    role: str
    number: int

    def __str__(self) -> str:
        return f"{self.role} {self.number}"


class Way(NamedTuple):
    """To which door a worker goes, of which machine's first worker, and as whom."""

    door: str
    machine: int
    seat: Seat


@dataclass(frozen=True)
class Plan:
    """What one worker does to be connected.

    Attributes:
        doors: whom it lets in, by door.
        ways: where it goes.
    """

    doors: dict[str, list[Seat]]
    ways: list[Way]


def star(ranks: Ranks, *, ring: bool) -> Plan:
    """The workers of a machine to their first; the first of each machine to the chief, and around in a ring."""
    if not ranks.is_hub:
        return Plan({}, [Way("local", ranks.cross_rank, Seat("local", ranks.local_rank))])
    is_chief, machines = ranks.rank == 0, ranks.cross_size
    local = [Seat("local", index) for index in range(1, ranks.local_size)]
    others = [Seat("machine", index) for index in range(1, machines) if is_chief]
    ways = [] if is_chief else [Way("machines", 0, Seat("machine", ranks.cross_rank))]
    if ring and machines > 1:
        others.append(Seat("ring", (ranks.cross_rank - 1) % machines))
        ways.append(Way("machines", (ranks.cross_rank + 1) % machines, Seat("ring", ranks.cross_rank)))
    return Plan({door: seats for door, seats in (("local", local), ("machines", others)) if seats}, ways)


def flat(ranks: Ranks) -> Plan:
    """Everybody to the chief."""
    if ranks.rank == 0:
        return Plan({"machines": [Seat("rank", rank) for rank in range(1, ranks.size)]}, [])
    return Plan({}, [Way("machines", 0, Seat("rank", ranks.rank))])


def describe(seats: list[Seat], ranks: Ranks) -> tuple[str, int]:
    """Names of workers that did not come to the one of ``ranks``, and the lowest rank among them."""
    first = {"rank": 0, "local": ranks.rank, "machine": 0, "ring": 0}
    step = {"rank": 1, "local": 1, "machine": ranks.local_size, "ring": ranks.local_size}
    # Nobody told their ranks; launchers number workers machine by machine.
    missing = sorted((first[seat.role] + step[seat.role] * seat.number, seat) for seat in seats)
    names = [f"rank {rank}" if seat.role == "rank" else f"rank {rank} ({seat})" for rank, seat in missing]
    return ", ".join(names), missing[0][0]
