"""One ordered stream of collectives between all workers of a job."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from det_core.comm._link import Gone, Link, Unexpected
from det_core.comm._message import FAIL, Buffer, pack, unpack
from det_core.comm._ranks import Peer, Ranks
from det_core.comm._ring import Ring
from det_core.comm._tree import LOCAL, OPS, Call, Tree
from det_core.errors import CommError, OutOfStep, PeerLost

T = TypeVar("T")

_LAST_WORDS: Final = 1.0
"""Seconds in which the others are told of an error, and in which the true cause of a broken ring may arrive."""


class Lane:
    """Collectives of bytes. All workers call the same ones in the same order, one thread at a time.

    After an error the lane is closed, and every later call raises the same.

    Args:
        ranks: this worker.
        tree: all workers.
        local: the workers of this machine; None if the lane is for the whole job only.
        ring: the machines; None where the tree does its work.
        heartbeat: called every second of waiting; raises `PeerLost` when a host fell silent.
        timeout: seconds to wait for living peers in one call; None = for ever.
    """

    def __init__(
        self,
        ranks: Ranks,
        tree: Tree,
        local: Tree | None,
        ring: Ring | None,
        *,
        heartbeat: Callable[[], None],
        timeout: float | None,
    ) -> None:
        self.tree = tree
        self._local, self._ring, self._heartbeat, self._timeout = local, ring, heartbeat, timeout
        self._rank, self._local_rank = ranks.rank, ranks.local_rank
        self._me = Peer.myself(ranks)
        self._calls = {False: 0, True: 0}
        self._error: CommError | None = None

    def gather(self, data: Buffer, *, local: bool = False) -> list[Buffer] | None:
        """The list of everybody's ``data`` at the root, None elsewhere; nobody returns before all have called."""

        def body(call: Call, tree: Tree, key: int) -> list[Buffer] | None:
            collected = tree.gather(call, key, data)
            tree.broadcast(call)
            return None if collected is None else list(collected.values())

        return self._run(0, local, body)

    def allgather(self, data: Buffer, *, local: bool = False) -> list[Buffer]:
        """The list of everybody's ``data``."""

        def body(call: Call, tree: Tree, key: int) -> list[Buffer]:
            return list(self._allgather(call, tree, key, data).values())

        return self._run(1, local, body)

    def broadcast(self, data: Buffer, *, local: bool = False) -> Buffer:
        """The root's ``data``; the others' is ignored. The root does not wait for them."""
        return self._run(2, local, lambda call, tree, key: tree.broadcast(call, data))

    def watch(self) -> None:
        """Between two calls: raise if a peer was lost or gave up."""
        self._heartbeat()
        watch(self.tree.links)

    def close(self) -> None:
        """Leave; those who wait for this worker raise `PeerLost`. Wakes a thread that is in a call."""
        self._error = self._error or CommError("this context was closed; collectives need an open one")
        for link in self._links:
            link.close()

    @property
    def _links(self) -> list[Link]:
        return [*self.tree.links, *((self._ring.right, self._ring.left) if self._ring else ())]

    def _allgather(self, call: Call, tree: Tree, key: int, data: Buffer) -> dict[int, Buffer]:
        ring = self._ring if tree is self.tree else None
        within = self._local if ring and self._local else tree
        collected = within.gather(call, key, data)
        if collected is None:
            return unpack(within.broadcast(call))
        if ring:
            machines = ring.allgather(replace(call, idle=self._ring_idle(call)), b"".join(pack(collected)))
            collected = dict(sorted(item for machine in machines for item in unpack(machine).items()))
        within.broadcast(call, *pack(collected))
        return collected

    def _run(self, op: int, local: bool, body: Callable[[Call, Tree, int], T]) -> T:
        tree, key = (self._local, self._local_rank) if local else (self.tree, self._rank)
        assert tree
        if self._error:
            raise self._error
        if os.getpid() != self._me.pid:
            raise CommError(f"this context belongs to process {self._me.pid}; a forked child cannot use it")
        self._calls[local] += 1
        name = OPS[op := op + LOCAL * local]
        call = Call(op, self._calls[local], partial(self._idle, name, time.monotonic()))
        try:
            return body(call, tree, key)
        except Gone as gone:
            raise self.give_up(self._cause(gone, name)) from None
        except Unexpected as frame:
            raise self.give_up(self._out_of_step(call, frame)) from None
        except CommError as error:
            raise self.give_up(error) from None
        except BaseException as error:
            self.give_up(PeerLost(f"{self._me} left {name}: {error!r}", self._rank))
            raise

    def _idle(self, name: str, started: float, links: Iterable[Link]) -> None:
        if self._error:
            raise self._error
        self._heartbeat()
        if self._timeout is not None and time.monotonic() - started > self._timeout:
            late = sorted((link.peer for link in links), key=lambda peer: peer.rank)
            raise PeerLost(
                f"{', '.join(map(str, late))} did not join {name} within {self._timeout:g} s; "
                "pass a longer timeout to DistributedContext if workers may be that late",
                late[0].rank,
            )

    def _ring_idle(self, call: Call) -> Callable[[Iterable[Link]], None]:
        """Out of step, the machines of a ring would wait for each other for ever: so listen to the tree as well."""
        unaware = {link for link in self.tree.down if link.is_remote}

        def idle(links: Iterable[Link]) -> None:
            nonlocal unaware
            call.idle(links)
            unaware -= call.nudge(unaware)
            up = self.tree.up
            with suppress(Gone):  # the root may have finished before the last payload came here
                while up and (head := up.peek()):
                    kind, op, seq = head
                    if kind != FAIL:
                        if seq > call.seq:
                            break
                        call.check(up, kind, op, seq)
                    up.receive(_forbear)

        return idle

    def _cause(self, gone: Gone, name: str) -> CommError:
        """What made the connection end: the last word that the peer sent, or its death."""
        if self._error:
            return self._error
        try:
            with suppress(Gone):
                while gone.link.is_readable() and not gone.link.is_receiving:
                    gone.link.receive(_forbear)
            if self._ring and gone.link in (self._ring.left, self._ring.right):
                self._listen_for_failure({*self._links} - {gone.link})
        except CommError as error:
            return error
        return PeerLost(f"{gone.link.peer} died or left during {name}", gone.link.peer.rank)

    def _listen_for_failure(self, links: set[Link]) -> None:
        # A neighbour that only passed on bad news and left is not the one that died.
        end = time.monotonic() + _LAST_WORDS
        while time.monotonic() < end:
            for link in [link for link in links if not link.is_receiving]:
                with suppress(Gone):
                    if (head := link.peek()) and head[0] == FAIL:
                        link.receive(_forbear)
            time.sleep(0.02)

    def _out_of_step(self, call: Call, frame: Unexpected) -> OutOfStep:
        return OutOfStep(
            f"{self._me} is in {OPS[call.op]} (call {call.seq}) and {frame.link.peer} in {OPS[frame.op]} "
            f"(call {frame.seq}); all workers must call the same collectives in the same order"
        )

    def give_up(self, error: CommError) -> CommError:
        """Tell everybody, and close."""
        self._error = error
        ring = [self._ring.right] if self._ring else []
        say_and_close([*self.tree.links, *ring], error)
        self.close()
        return error


def watch(links: Iterable[Link]) -> None:
    """Raise if a peer was lost or gave up. Everything else that it sent stays unread."""
    for link in links:
        try:
            if (head := link.peek()) and head[0] == FAIL:
                link.receive(_forbear)
        except Gone:
            raise PeerLost(f"{link.peer} died or left while all were connecting", link.peer.rank) from None


def say_and_close(links: Iterable[Link], error: CommError) -> None:
    """Tell the peers why this worker leaves them, unless that takes long."""
    end = time.monotonic() + _LAST_WORDS
    for link in links:
        if not link.is_sending and (link.is_writable() or time.monotonic() < end):
            with suppress(Gone, Unexpected, CommError):
                link.fail(error, _forbear)
        link.close()


def _forbear(links: Iterable[Link]) -> None:
    """An `Idle` for what should be here already."""
    raise Gone(next(iter(links)))
