"""Ordered channel of collectives between all workers of a job."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from det_core.comm._collectives import LOCAL, OPS, CollectiveCall, Collectives
from det_core.comm._link import TICK, Link, LinkClosed, UnexpectedFrame, refuse_to_wait
from det_core.comm._message import FAIL
from det_core.comm._payload import Payload
from det_core.comm._ranks import Peer
from det_core.errors import CommError, OutOfStep, PeerLate, PeerLost

_LAST_WORDS: Final = 1.0
"""Time limit in seconds to report an error to the peers, and to receive the true cause of a broken ring."""


class CollectiveChannel:
    """Channel for collectives of bytes. All workers call the same ones in the same order, one thread at a time.

    A collective raises `PeerLost` if a worker is lost, `PeerLate` after the timeout, and `OutOfStep` if workers call
    different collectives. After an error the channel is closed, and every later call raises the same error.

    Args:
        me: this worker.
        everybody: the group of all workers.
        local: the group of the workers of this machine, or None if the channel is for the whole job only.
        heartbeat: function called every second of waiting. It raises `PeerLost` when a host no longer answers.
        timeout: seconds to wait for living peers in one call, or None to wait without a limit.
    """

    def __init__(
        self,
        me: Peer,
        everybody: Collectives,
        local: Collectives | None,
        *,
        heartbeat: Callable[[], None],
        timeout: float | None,
    ) -> None:
        self.everybody = everybody
        self._me, self._heartbeat, self._timeout = me, heartbeat, timeout
        self._collectives = (*everybody.collectives, *(local.collectives if local else ()))
        self._calls = [0, 0]
        self._op, self._started = 0, 0.0
        self._on_idle = self._idle
        self._error: CommError | None = None

    def gather(self, data: Payload, *, local: bool = False) -> list[Payload] | None:
        """Return the data of all workers at the root and None elsewhere. No worker returns before all have called.

        Args:
            data: the data of this worker.
            local: whether only the workers of this machine take part.
        """
        gathered: list[Payload] | None = self._run(0, local, data)
        return gathered

    def allgather(self, data: Payload, *, local: bool = False) -> list[Payload]:
        """Return the data of all workers, with arguments as for `gather`."""
        gathered: list[Payload] = self._run(1, local, data)
        return gathered

    def broadcast(self, data: Payload, *, local: bool = False) -> Payload:
        """Return the data of the root, with arguments as for `gather`.

        The data of other workers is ignored. The root does not wait for them.
        """
        payload: Payload = self._run(2, local, data)
        return payload

    def watch(self) -> None:
        """Raise between two calls if a peer was lost or gave up."""
        self._heartbeat()
        check_peers(self.everybody.links)

    def close(self) -> None:
        """Close the channel. Peers that wait for this worker raise `PeerLost`, and a thread in a call wakes up."""
        self._error = self._error or CommError("this context was closed; collectives need an open one")
        for link in self.everybody.links:
            link.close()

    def _run(self, op: int, local: bool, data: Payload) -> Any:
        if self._error:
            raise self._error
        if os.getpid() != self._me.pid:
            raise CommError(f"this context belongs to process {self._me.pid}; a forked child cannot use it")
        self._calls[local] += 1
        self._op = op = op + LOCAL * local
        self._started = time.monotonic()
        call = CollectiveCall(op, self._calls[local], self._on_idle)
        try:
            return self._collectives[op](call, data)
        except LinkClosed as gone:
            raise self._give_up(self._cause(gone)) from None
        except UnexpectedFrame as frame:
            raise self._give_up(self._out_of_step(call, frame)) from None
        except CommError as error:
            raise self._give_up(error) from None
        except BaseException as error:
            self._give_up(PeerLost(f"{self._me} aborted {OPS[op]}: {error!r}", self._me.rank))
            raise

    def _idle(self, links: Iterable[Link]) -> None:
        if self._error:
            raise self._error
        self._heartbeat()
        if self._timeout is not None and time.monotonic() - self._started > self._timeout + self._slack(links):
            late = sorted((link.peer for link in links), key=lambda peer: peer.rank)
            raise PeerLate(
                f"{', '.join(map(str, late))} did not join {OPS[self._op]} within {self._timeout:g} s; pass a longer "
                "timeout to DistributedContext, or set distributed.timeout in the config, if workers may be that late",
                late[0].rank,
            )

    def _slack(self, links: Iterable[Link]) -> float:
        """Return extra seconds for peers that may be waiting themselves, because they can report who is late."""
        if not self.everybody.down or not set(links) <= set(self.everybody.down):
            return 4 * TICK
        return 2 * TICK if any(link.is_remote for link in links) else 0.0

    def _cause(self, gone: LinkClosed) -> CommError:
        """Return the cause of a lost connection, which is the last error that the peer sent, or else its death."""
        if self._error:
            return self._error
        try:
            with suppress(LinkClosed):
                while gone.link.is_readable() and not gone.link.is_receiving:
                    gone.link.receive(refuse_to_wait)
            if gone.link in self.everybody.neighbours:
                _listen_for_failure(link for link in self.everybody.links if link is not gone.link)
        except CommError as error:
            return error
        return PeerLost(f"{gone.link.peer} died or disconnected during {OPS[self._op]}", gone.link.peer.rank)

    def _out_of_step(self, call: CollectiveCall, frame: UnexpectedFrame) -> OutOfStep:
        return OutOfStep(
            f"{self._me} is in {OPS[call.op]} (call {call.seq}), but {frame.link.peer} is in {OPS[frame.op]} "
            f"(call {frame.seq}); all workers must call the same collectives in the same order"
        )

    def _give_up(self, error: CommError) -> CommError:
        """Report an error to all peers, close the channel, and return the error."""
        self._error = error
        report_and_close(self.everybody.links, error)
        return error


def _listen_for_failure(links: Iterable[Link]) -> None:
    # A neighbour that disconnected after it reported an error is not the one that died.
    whole = [link for link in links if not link.is_receiving]
    end = time.monotonic() + _LAST_WORDS
    while time.monotonic() < end:
        for link in whole:
            with suppress(LinkClosed):
                if (head := link.peek()) and head[0] == FAIL:
                    link.receive(refuse_to_wait)
        time.sleep(0.02)


def check_peers(links: Iterable[Link]) -> None:
    """Raise if a peer was lost or gave up. All other frames stay unread."""
    for link in links:
        try:
            if (head := link.peek()) and head[0] == FAIL:
                link.receive(refuse_to_wait)
        except LinkClosed:
            raise PeerLost(f"{link.peer} died or disconnected while workers were connecting", link.peer.rank) from None


def report_and_close(links: Iterable[Link], error: CommError) -> None:
    """Report an error to the peers, unless that takes long, and close the links."""
    end = time.monotonic() + _LAST_WORDS
    for link in links:
        if not link.is_sending and (link.is_writable() or time.monotonic() < end):
            with suppress(LinkClosed, UnexpectedFrame, CommError):
                link.fail(error, refuse_to_wait)
        link.close()
