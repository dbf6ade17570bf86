"""Gather and broadcast along a tree, in which each worker has at most one link up, to its parent."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from det_core.comm._link import TICK, IdleCallback, Link, UnexpectedFrame
from det_core.comm._message import DATA, MANY, NUDGE, Message
from det_core.comm._payload import Payload, SharedPayload, unpack_payloads

OPS: Final = ("gather", "allgather", "broadcast", "gather_local", "allgather_local", "broadcast_local")
"""Names of the collectives, by number."""

LOCAL: Final = 3
"""Offset from the number of a collective to that of the same collective among the workers of one machine."""

_LOOKS: Final = 100
"""Number of polls without a wait."""


def is_local_collective(op: int) -> bool:
    """Return whether a collective is among the workers of one machine. Its calls are counted separately."""
    return op >= LOCAL


@dataclass(slots=True)
class CollectiveCall:
    """One call of a collective, the same at all workers that are in step.

    Attributes:
        op: number of the collective, an index of `OPS`.
        seq: number of the call in its scope, which is the whole job or this machine.
        idle: function called during waits.
    """

    op: int
    seq: int
    idle: IdleCallback

    def receive(self, link: Link, *, ready: bool = False) -> tuple[int, Payload, Sequence[SharedPayload]]:
        """Receive what the peer sends in this call.

        Args:
            link: the link to the peer.
            ready: as for `Link.receive`.

        Returns:
            The kind, which is `DATA` or `MANY`, the payload, and the files that belong to it.

        Raises:
            UnexpectedFrame: the peer is in another call.
        """
        while True:
            kind, op, seq, payload, files = link.receive(self.idle, ready=ready)
            ready = False
            if kind < NUDGE and op == self.op and seq == self.seq:
                return kind, payload, files
            self.check(link, kind, op, seq)

    def check(self, link: Link, kind: int, op: int, seq: int) -> None:
        """Raise `UnexpectedFrame` if the peer is in another call. A nudge of an earlier call is already answered."""
        is_answered = kind == NUDGE and seq < self.seq and is_local_collective(op) == is_local_collective(self.op)
        if (op, seq) != (self.op, self.seq) and not is_answered:
            raise UnexpectedFrame(link, op, seq)

    def send(self, link: Link, payload: Payload | dict[int, Payload]) -> None:
        """Send one payload, or the payloads of several workers by number."""
        kind = MANY if isinstance(payload, dict) else DATA
        link.send(Message(kind, self.op, self.seq, payload), self.idle)

    def nudge(self, links: Iterable[Link]) -> set[Link]:
        """Report the call in which this worker waits, so that peers in another call notice.

        Returns:
            The links over which it was reported, which are those without a full buffer.
        """
        nudged = {link for link in links if link.is_writable()}
        for link in nudged:
            link.send(Message(NUDGE, self.op, self.seq), self.idle)
        return nudged


class Collectives:
    """Collectives of a group of workers, through the links of this worker.

    Args:
        up: link to the parent, or None at the root.
        down: links to the children.

    Attributes:
        collectives: the three collectives, in the order of `OPS`.
    """

    def __init__(self, up: Link | None, down: Iterable[Link] = ()) -> None:
        self.up, self.down = up, tuple(down)
        self.neighbours: tuple[Link, ...] = ()
        """Links that are not part of the tree."""
        self.collectives = self.gather, self.allgather, self.broadcast

    @property
    def links(self) -> tuple[Link, ...]:
        """All links of this worker."""
        return (*self.down, *((self.up,) if self.up else ()), *self.neighbours)

    def gather(self, call: CollectiveCall, data: Payload) -> list[Payload] | None:
        """Return the data of all workers at the root and None elsewhere, once all workers have called."""
        raise NotImplementedError

    def allgather(self, call: CollectiveCall, data: Payload) -> list[Payload]:
        """Return the data of all workers."""
        raise NotImplementedError

    def broadcast(self, call: CollectiveCall, data: Payload) -> Payload:
        """Return the data of the root."""
        raise NotImplementedError


class LeafCollectives(Collectives):
    """Group of a worker without children."""

    def __init__(self, up: Link) -> None:
        super().__init__(up)
        self._up = up

    def gather(self, call: CollectiveCall, data: Payload) -> None:
        call.send(self._up, data)
        call.receive(self._up)

    def allgather(self, call: CollectiveCall, data: Payload) -> list[Payload]:
        call.send(self._up, data)
        _, payload, files = call.receive(self._up)
        return list(unpack_payloads(payload, files).values())

    def broadcast(self, call: CollectiveCall, data: Payload) -> Payload:
        return call.receive(self._up)[1]


class HubCollectives(Collectives):
    """Group of a worker with children, which is the root or a worker below it.

    Args:
        key: number of this worker in the group.
        up: link to the parent, or None at the root.
        down: links to the children, by their numbers.
    """

    def __init__(self, key: int, up: Link | None, down: Mapping[int, Link]) -> None:
        super().__init__(up, down.values())
        self._key = key
        self._by_descriptor = {link.fileno(): (number, link) for number, link in down.items()}
        self._below, self._all = _poller(self.down), _poller(self.links)

    def gather(self, call: CollectiveCall, data: Payload) -> list[Payload] | None:
        collected = self.collect(call, data)
        if self.up is None:
            self.send_down(call, b"")
            return list(collected.values())
        call.send(self.up, collected)
        self.broadcast(call, b"")
        return None

    def allgather(self, call: CollectiveCall, data: Payload) -> list[Payload]:
        collected = self.collect(call, data)
        if self.up is None:
            self.send_down(call, collected)
            return list(collected.values())
        call.send(self.up, collected)
        return list(unpack_payloads(self.broadcast(call, b"")).values())

    def broadcast(self, call: CollectiveCall, data: Payload) -> Payload:
        if self.up is not None:
            data = self._receive_from_above(call, self.up)
        self.send_down(call, data)
        return data

    def collect(self, call: CollectiveCall, data: Payload) -> dict[int, Payload]:
        """Return the data of this worker and of all workers below it, ordered by number."""
        collected, waiting, unaware = {self._key: data}, set(self.down), set(self.down)
        # A watch between two calls may have read data, which no poll will report again.
        ready = [descriptor for descriptor, (_, link) in self._by_descriptor.items() if link.is_ahead()]
        while True:
            for descriptor in ready:
                number, link = self._by_descriptor[descriptor]
                kind, payload, files = call.receive(link, ready=True)
                if kind == DATA:
                    collected[number] = payload
                else:
                    collected.update(unpack_payloads(payload, files))
                waiting.remove(link)
            if not waiting:
                return dict(sorted(collected.items()))
            ready = _await(self._below)
            if not ready:
                call.idle(waiting)
                unaware -= call.nudge(waiting & unaware)

    def send_down(self, call: CollectiveCall, payload: Payload | dict[int, Payload]) -> None:
        """Send one payload, or the payloads of several workers by number, to all children."""
        message = Message(DATA, call.op, call.seq, payload)
        for link in self.down:
            link.send(message, call.idle)

    def _receive_from_above(self, call: CollectiveCall, up: Link) -> Payload:
        # Children send nothing now, so whatever is readable there is the end of the stream or a mistake.
        while not up.is_readable():
            ready = self._all.poll(1000 * TICK)
            for descriptor, _ in ready:
                if descriptor in self._by_descriptor:
                    _, link = self._by_descriptor[descriptor]
                    _, op, seq, *_ = link.receive(call.idle)
                    raise UnexpectedFrame(link, op, seq)
            if not ready:
                call.idle((up,))
        return call.receive(up)[1]


def _await(poller: select.poll) -> list[int]:
    """Return the descriptors that are ready within a tick.

    Workers call at nearly the same time, so repeated polling is cheaper than sleeping.
    """
    for _ in range(_LOOKS):
        if ready := poller.poll(0):
            break
        os.sched_yield()
    else:
        ready = poller.poll(1000 * TICK)
    return [descriptor for descriptor, _ in ready]


def _poller(links: Iterable[Link]) -> select.poll:
    poller = select.poll()
    for link in links:
        poller.register(link, select.POLLIN)
    return poller
