"""Gather and broadcast along a tree: each worker has at most one link up, to the one that speaks for it."""

from __future__ import annotations

import select
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from det_core.comm._link import TICK, Idle, Link, Unexpected
from det_core.comm._message import DATA, NUDGE, Buffer, Message, pack, unpack

OPS: Final = ("gather", "allgather", "broadcast", "gather_local", "allgather_local", "broadcast_local")
"""The collectives by number."""

LOCAL: Final = 3
"""Added to a number, it is the same collective among the workers of one machine."""


def is_local(op: int) -> bool:
    """Whether the collective is among the workers of one machine; these are counted by themselves."""
    return op >= LOCAL


@dataclass(slots=True)
class Call:
    """One collective, the same at all workers that are in step.

    Attributes:
        op: which one, an index.
        seq: how many of its scope (the whole job, or this machine) came before it.
        idle: called while it waits.
    """

    op: int
    seq: int
    idle: Idle

    def receive(self, link: Link) -> Buffer:
        """The payload that the peer sends in this call."""
        while True:
            kind, op, seq, payload = link.receive(self.idle)
            if self.check(link, kind, op, seq) and kind == DATA:
                return payload

    def check(self, link: Link, kind: int, op: int, seq: int) -> bool:
        """Whether a frame belongs to this call; False for an old nudge, which was answered before it arrived."""
        if (op, seq) == (self.op, self.seq):
            return True
        if kind == NUDGE and seq < self.seq and is_local(op) == is_local(self.op):
            return False
        raise Unexpected(link, op, seq)

    def send(self, links: Iterable[Link], *parts: Buffer) -> None:
        """Send one payload to all of ``links``."""
        message = Message(DATA, self.op, self.seq, *parts)
        for link in links:
            link.send(message, self.idle)

    def nudge(self, links: Iterable[Link]) -> set[Link]:
        """Say which call this worker waits in, so that one who waits in another finds out; returns who was told."""
        told = {link for link in links if link.is_writable()}
        for link in told:
            link.send(Message(NUDGE, self.op, self.seq), self.idle)
        return told


class Tree:
    """This worker's links of a tree.

    Args:
        up: to the worker that speaks for this one; None at the root.
        down: to those that this worker speaks for.
    """

    def __init__(self, up: Link | None, down: Sequence[Link]) -> None:
        self.up, self.down = up, tuple(down)
        self.links = (*self.down, up) if up else self.down
        self._by_descriptor = {link.fileno(): link for link in self.links}
        self._all, self._below, self._last = map(_poller, (self.links, self.down, self.down[-1:]))

    def gather(self, call: Call, key: int, data: Buffer) -> dict[int, Buffer] | None:
        """Everybody's ``data`` by key at the root; None elsewhere, where it returns before the root has them."""
        collected = self._collect(call, key, data) if self.down else {key: data}
        if self.up is None:
            return dict(sorted(collected.items()))
        call.send((self.up,), *pack(collected))
        return None

    def broadcast(self, call: Call, *parts: Buffer) -> Buffer:
        """The payload that the root sends, passed on to those below; at the root itself nothing."""
        payload: Buffer = b""
        if self.up is not None:
            payload = self._receive_from_above(call, self.up)
            parts = (payload,)
        if self.down:
            call.send(self.down, *parts)
        return payload

    def _collect(self, call: Call, key: int, data: Buffer) -> dict[int, Buffer]:
        collected, waiting, unaware = {key: data}, set(self.down), set(self.down)
        self._last.poll(1000 * TICK)  # most others will be here then: one wake-up instead of many
        while waiting:
            ready = self._below.poll(1000 * TICK)
            for descriptor, _ in ready:
                link = self._by_descriptor[descriptor]
                collected.update(unpack(call.receive(link)))
                waiting.remove(link)
            if not ready:
                call.idle(waiting)
                unaware -= call.nudge(waiting & unaware)
        return collected

    def _receive_from_above(self, call: Call, up: Link) -> Buffer:
        # A worker below has nothing to say meanwhile: whatever is readable there is its end, or a mistake.
        while self.down and not up.is_readable():
            ready = self._all.poll(1000 * TICK)
            for link in (self._by_descriptor[descriptor] for descriptor, _ in ready):
                if link is not up:
                    _, op, seq, _ = link.receive(call.idle)
                    raise Unexpected(link, op, seq)
            if not ready:
                call.idle((up,))
        return call.receive(up)


def _poller(links: Iterable[Link]) -> select.poll:
    poller = select.poll()
    for link in links:
        poller.register(link, select.POLLIN)
    return poller
