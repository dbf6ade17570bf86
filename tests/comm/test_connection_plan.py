"""Connections between workers, as planned by each of them."""

from __future__ import annotations

from collections import Counter

import pytest

from det_core.comm._connection_plan import (
    ConnectionPlan,
    PeerRole,
    describe_missing_peers,
    plan_direct,
    plan_star,
)
from det_core.comm._ranks import Ranks

from . import job

LAYOUTS = pytest.mark.parametrize("machines", [(2,), (4,), (2, 2), (1, 1, 1), (3, 1, 2)], ids=str)


def connections(plans: dict[Ranks, ConnectionPlan]) -> list[tuple[str, Ranks, Ranks]]:
    """Return transport and both ends of all connections, and check that both ends plan the same ones."""
    hubs = {ranks.cross_rank: ranks for ranks in plans if ranks.is_hub}
    made = [
        (outgoing.transport, ranks, hubs[outgoing.machine], outgoing.role)
        for ranks, plan in plans.items()
        for outgoing in plan.outgoing
    ]
    expected = [
        (transport, hub, role)
        for hub, plan in plans.items()
        for transport, roles in plan.incoming.items()
        for role in roles
    ]
    found = [(transport, hub, role) for transport, _, hub, role in made]
    assert len(set(expected)) == len(expected) and set(found) == set(expected) and len(found) == len(expected)
    assert all(roles for plan in plans.values() for roles in plan.incoming.values())
    return [(transport, ranks, hub) for transport, ranks, hub, _ in made]


@LAYOUTS
def test_a_star_connects_machines_through_their_first_workers(machines: tuple[int, ...]) -> None:
    everybody = [Ranks(**place) for place in job.layout(*machines)]
    star = connections({ranks: plan_star(ranks, ring=False) for ranks in everybody})
    assert len(star) == len(everybody) - 1
    for transport, lower, upper in star:
        assert (transport, lower.is_hub, upper.rank if lower.is_hub else upper.cross_rank) in (
            ("machines", True, 0),
            ("local", False, lower.cross_rank),
        )


@LAYOUTS
def test_a_ring_also_connects_each_machine_with_the_next(machines: tuple[int, ...]) -> None:
    everybody = [Ranks(**place) for place in job.layout(*machines)]
    star, ring = (connections({ranks: plan_star(ranks, ring=ring) for ranks in everybody}) for ring in (False, True))
    added, count = Counter(ring) - Counter(star), len(machines)
    assert sorted((lower.cross_rank, upper.cross_rank) for _, lower, upper in added.elements()) == [
        (machine, (machine + 1) % count) for machine in range(count) if count > 1
    ]


@LAYOUTS
def test_all_workers_can_connect_to_the_chief(machines: tuple[int, ...]) -> None:
    everybody = [Ranks(**place) for place in job.layout(*machines)]
    direct = connections({ranks: plan_direct(ranks) for ranks in everybody})
    assert [(transport, lower.rank, upper.rank) for transport, lower, upper in direct] == [
        ("machines", rank, 0) for rank in range(1, len(everybody))
    ]


@pytest.mark.parametrize(
    ("place", "missing", "names", "lowest"),
    [
        (1, [PeerRole("local", 1)], "rank 3 (local 1)", 3),
        (0, [PeerRole("machine", 1), PeerRole("local", 1)], "rank 1 (local 1), rank 2 (machine 1)", 1),
        (0, [PeerRole("ring", 2)], "rank 4 (ring 2)", 4),
        (0, [PeerRole("rank", 5), PeerRole("rank", 3)], "rank 3, rank 5", 3),
    ],
)
def test_missing_workers_are_named_by_rank(place: int, missing: list[PeerRole], names: str, lowest: int) -> None:
    hubs = [Ranks(**each) for each in job.layout(2, 2, 2) if each["local_rank"] == 0]
    assert describe_missing_peers(missing, hubs[place]) == (names, lowest)
