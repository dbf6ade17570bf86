"""Connections of one worker to all others."""

from __future__ import annotations

import functools
import json
import operator
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, Final

from det_core.comm._collective_channel import CollectiveChannel, check_peers, report_and_close
from det_core.comm._collectives import Collectives, HubCollectives, LeafCollectives
from det_core.comm._connection_plan import (
    ConnectionPlan,
    OutgoingLink,
    PeerRole,
    describe_missing_peers,
    plan_direct,
    plan_star,
)
from det_core.comm._handshake import Listener, Transport, connect_to_listener
from det_core.comm._link import TICK, Link
from det_core.comm._notices import Notices
from det_core.comm._payload import view_payload
from det_core.comm._ranks import Peer, Ranks
from det_core.comm._ring_collectives import RingCollectives
from det_core.comm._tcp import TcpTransport
from det_core.comm._unix import UnixTransport, rendezvous_path
from det_core.errors import CommError, PeerLost
from det_core.extras import explain_missing_extra, has_extra

_RENDEZVOUS_SECONDS: Final = 600.0
"""Seconds for the meeting if there is no other time limit."""
_GRACE: Final = 5.0
"""Seconds after the time limit in which workers that know who is missing inform the others.

It is also the time limit after a worker with another key has connected.
"""


class Mesh:
    """Connections between the workers of a job, as seen by one worker.

    Workers meet at addresses that all of them know. The workers of a machine meet at a Unix socket, and the machines
    at the chief's TCP port, where all workers meet with ``force_tcp``. The connections of this meeting form the
    control channel. It carries the addresses for all other connections, then notices, and shows when a host no longer
    answers.

    Args:
        ranks: place of this worker in the job, whose size is more than 1.
        chief_ip: address of the chief's machine.
        port: TCP port of the chief.
        force_tcp: whether workers of the same machine use TCP instead of Unix sockets.
        timeout: seconds for the meeting, and to wait for living peers in a collective. None means 600 s for the
            meeting and no limit for collectives.

    Attributes:
        channel: the first channel for collectives.
        notices: texts from workers to the chief.

    Raises:
        PeerLost: a worker did not connect in time.
        CommError: a worker has another size, key or job, the port is in use, or the library for TLS is missing.
        ValueError: TCP is needed, and DET_COMM_KEY is missing or too short.
    """

    def __init__(self, ranks: Ranks, *, chief_ip: str, port: int, force_tcp: bool, timeout: float | None) -> None:
        if (force_tcp or ranks.cross_size > 1) and not has_extra("tls"):  # on all workers, so that none waits in vain
            raise CommError(explain_missing_extra("tls"))
        self._ranks, self.timeout = ranks, timeout
        self._timeout = _RENDEZVOUS_SECONDS if timeout is None else timeout
        self._me, self._job = Peer.myself(ranks), [ranks.size, ranks.cross_size]
        self._transports: dict[str, Transport] = {"local": UnixTransport()}
        needs_tcp = force_tcp or (ranks.is_hub and ranks.cross_size > 1)
        here, bind = chief_ip, chief_ip if ranks.cross_size == 1 else ""
        if needs_tcp:
            self._transports["machines"] = TcpTransport(here, bind, carries_payloads=False)
        self._control = self._meet(plan_direct(ranks) if force_tcp else plan_star(ranks, ring=False), chief_ip, port)
        with ExitStack() as undo:
            undo.callback(self._control.close)
            if needs_tcp:
                if up := self._control.everybody.up:
                    here = bind = up.local_address()
                self._transports["machines"] = TcpTransport(here, bind, carries_payloads=True)
            if force_tcp:
                self._transports["local"] = self._transports["machines"]
            self.channel = self.open_channel(self._control, timeout)
            undo.pop_all()
        self.notices = Notices(self._control.everybody)

    def open_channel(self, parent: CollectiveChannel, timeout: float | None) -> CollectiveChannel:
        """Open another channel. All workers must do so in step, as in a collective of ``parent``.

        Args:
            parent: the open channel that carries the new addresses.
            timeout: as for `CollectiveChannel`.

        Raises:
            PeerLost: a worker was lost.
            CommError: workers share a rank, or ``parent`` has failed.
        """
        ranks, plan = self._ranks, plan_star(self._ranks, ring=True)
        with ExitStack() as stack:
            listeners = {
                name: stack.enter_context(closing(self._listen(name, self._transports[name].fresh(), roles)))
                for name, roles in plan.incoming.items()
            }
            addresses = {name: listener.address for name, listener in listeners.items()}
            mine = json.dumps([ranks.cross_rank, ranks.local_rank, addresses]).encode()
            gathered = [json.loads(bytes(view_payload(each))) for each in parent.allgather(mine)]
            if len(gathered) != ranks.size:
                raise CommError(f"of {ranks.size} workers only {len(gathered)} have a rank of their own")
            hosts = {machine: (rank, theirs) for rank, (machine, local, theirs) in enumerate(gathered) if local == 0}
            places = [
                (hosts[outgoing.machine][1][outgoing.transport], hosts[outgoing.machine][0])
                for outgoing in plan.outgoing
            ]
            links = self._connect(plan, places, list(listeners.values()), 0.0, parent.watch)
        everybody = _build_collectives(ranks, plan, links)
        here = {role.number: link for role, link in links.items() if role.kind == "local"}
        local = HubCollectives(0, None, here) if ranks.is_hub else everybody
        return CollectiveChannel(self._me, everybody, local, heartbeat=self._check_hosts, timeout=timeout)

    def close(self) -> None:
        """Close the first channel and the control channel. Channels from `open_channel` are closed by their owners."""
        self.channel.close()
        self._control.close()

    def _meet(self, plan: ConnectionPlan, chief_ip: str, port: int) -> CollectiveChannel:
        end = time.monotonic() + self._timeout
        addresses = {"local": rendezvous_path(port, self._ranks.cross_rank), "machines": (chief_ip, port)}
        hubs = {"local": self._ranks.rank - self._ranks.local_rank, "machines": 0}
        with ExitStack() as stack:
            listeners = [
                stack.enter_context(closing(self._listen(name, addresses[name], roles)))
                for name, roles in plan.incoming.items()
            ]
            places = [(addresses[outgoing.transport], hubs[outgoing.transport]) for outgoing in plan.outgoing]
            links = self._connect(plan, places, listeners, self._timeout, lambda: None)
        left = max(0.0, end - time.monotonic()) + _GRACE
        return CollectiveChannel(
            self._me, _build_collectives(self._ranks, plan, links), None, heartbeat=lambda: None, timeout=left
        )

    def _listen(self, name: str, address: Any, roles: list[PeerRole]) -> Listener:
        return Listener(self._transports[name], address, self._me, self._job, roles)

    def _connect(
        self,
        plan: ConnectionPlan,
        places: list[tuple[Any, int]],
        listeners: list[Listener],
        seconds: float,
        watch_others: Callable[[], None],
    ) -> dict[PeerRole, Link]:
        """Connect to peers as the plan says, and wait for the peers that connect here.

        Args:
            plan: the connections to make.
            places: address of each outgoing connection of the plan, and the rank that listens there.
            listeners: the listeners for incoming connections.
            seconds: time limit for retries while nobody listens there.
            watch_others: function that raises if an expected peer is lost.
        """
        links: dict[PeerRole, Link] = {}
        try:
            for outgoing, (address, rank) in zip(plan.outgoing, places, strict=True):
                links[outgoing.role] = self._connect_to(outgoing, address, rank, seconds)
            self._wait(listeners, links, watch_others)
        except BaseException as error:
            reason = (
                error if isinstance(error, CommError) else PeerLost(f"{self._me} aborted: {error!r}", self._me.rank)
            )
            for listener in listeners:
                listener.close()
            report_and_close(_all_links(links, listeners).values(), reason)
            raise
        return _all_links(links, listeners)

    def _connect_to(self, outgoing: OutgoingLink, address: Any, rank: int, seconds: float) -> Link:
        try:
            return connect_to_listener(
                self._transports[outgoing.transport], address, self._me, self._job, outgoing.role, seconds=seconds
            )
        except OSError as error:
            waited = f" within {seconds:g} s" if seconds else ""
            raise PeerLost(f"rank {rank} could not be reached at {address}{waited}: {error}", rank) from error

    def _wait(self, listeners: list[Listener], links: dict[PeerRole, Link], watch_others: Callable[[], None]) -> None:
        began = time.monotonic()
        end = began + self._timeout
        for listener in listeners:
            while not listener.wait(min(TICK, max(0.0, end - time.monotonic()))):
                watch_others()
                check_peers(_all_links(links, listeners).values())
                if listener.other_key:  # a foreign process, or a worker that has given up
                    end = min(end, time.monotonic() + _GRACE)
                if time.monotonic() >= end:
                    names, lowest = describe_missing_peers(listener.missing, self._ranks)
                    cause = (
                        f"a worker at {listener.other_key} has another DET_COMM_KEY; set the same for all workers"
                        if listener.other_key
                        else "were they started, with the same ports and job environment?"
                    )
                    raise PeerLost(f"{names} did not connect within {end - began:.3g} s; {cause}", lowest)

    def _check_hosts(self) -> None:
        for link in self._control.everybody.links:
            if link.is_dead():
                raise PeerLost(f"{link.peer} is gone: its host has not answered for 30 s", link.peer.rank)


def _all_links(links: dict[PeerRole, Link], listeners: list[Listener]) -> dict[PeerRole, Link]:
    return functools.reduce(operator.or_, (listener.links for listener in listeners), links)


def _build_collectives(ranks: Ranks, plan: ConnectionPlan, links: dict[PeerRole, Link]) -> Collectives:
    """Return the group of all workers over the links of a plan."""
    went = {outgoing.role.kind: links[outgoing.role] for outgoing in plan.outgoing}
    came = [(role.kind, links[role]) for roles in plan.incoming.values() for role in roles]
    up = went.get("local") or went.get("machine") or went.get("rank")
    here, others, left = (
        {link.peer.rank: link for role, link in came if role in roles}
        for roles in (("local", "rank"), ("machine",), ("ring",))
    )
    if up and not plan.incoming:
        return LeafCollectives(up)
    if "ring" not in went:
        return HubCollectives(ranks.rank, up, {**here, **others})
    (neighbour,) = left.values()
    return RingCollectives(ranks.rank, up, here, others, left=neighbour, right=went["ring"], count=ranks.cross_size)
