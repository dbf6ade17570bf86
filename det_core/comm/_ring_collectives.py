"""Collectives between machines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, TimeoutError
from contextlib import suppress
from dataclasses import replace
from typing import Final

from det_core.comm._collectives import CollectiveCall, HubCollectives
from det_core.comm._link import TICK, IdleCallback, Link, LinkClosed, refuse_to_wait
from det_core.comm._message import FAIL
from det_core.comm._payload import Buffer, Payload, pack_payloads, unpack_payloads, view_payload

_FITS_BUFFERS: Final = 1 << 14
"""Number of bytes that TCP buffers without a reader, so that all machines may send before they receive."""


class RingCollectives(HubCollectives):
    """Collectives of all workers, in the first worker of one of several machines.

    An allgather goes around a ring. Each machine forwards what it has received, so that every payload enters and
    leaves every machine at most once.

    Args:
        key: rank of this worker.
        up: link to the chief, or None in the chief.
        here: links to the other workers of this machine, by rank.
        others: links to the first workers of the other machines by rank, in the chief only.
        left: link from the previous machine, which is only read from.
        right: link to the next machine, which is only written to.
        count: number of machines.
    """

    def __init__(
        self,
        key: int,
        up: Link | None,
        here: Mapping[int, Link],
        others: Mapping[int, Link],
        *,
        left: Link,
        right: Link,
        count: int,
    ) -> None:
        super().__init__(key, up, {**here, **others})
        self.neighbours = (left, right)
        self._left, self._right, self._count = left, right, count
        self._here, self._others = HubCollectives(key, None, here), others

    def allgather(self, call: CollectiveCall, data: Payload) -> list[Payload]:
        """Return the data of all workers."""
        collected = self._here.collect(call, data)
        payload: Buffer = pack_payloads(collected)
        watching = self._idle(call)
        for _ in range(self._count - 1):
            payload = self._pass_on(call, payload, watching)
            collected.update(unpack_payloads(payload))
        collected = dict(sorted(collected.items()))
        self._here.send_down(call, collected)
        return list(collected.values())

    def _pass_on(self, call: CollectiveCall, payload: Buffer, watching: IdleCallback) -> Buffer:
        if len(payload) <= _FITS_BUFFERS:
            call.send(self._right, payload)
            return view_payload(replace(call, idle=watching).receive(self._left)[1])
        sent = _in_thread(lambda: call.send(self._right, payload))  # no watching, as links belong to one thread

        def idle(links: Iterable[Link]) -> None:
            watching(links)
            if sent.done():
                sent.result()

        received = view_payload(replace(call, idle=idle).receive(self._left)[1])
        while True:
            try:
                sent.result(TICK)
            except TimeoutError:
                watching((self._right,))
            else:
                return received

    def _idle(self, call: CollectiveCall) -> IdleCallback:
        """Return a function for waits that also checks the tree.

        Without it, machines that are out of step would wait for each other in the ring forever.
        """
        unaware = set(self._others.values())

        def idle(links: Iterable[Link]) -> None:
            nonlocal unaware
            call.idle(links)
            unaware -= call.nudge(unaware)
            with suppress(LinkClosed):  # the chief may have finished before the last payload arrived here
                while self.up and (head := self.up.peek()):
                    kind, op, seq = head
                    if kind != FAIL:
                        if seq > call.seq:
                            break
                        call.check(self.up, kind, op, seq)
                    self.up.receive(refuse_to_wait)

        return idle


def _in_thread(work: Callable[[], None]) -> Future[None]:
    future: Future[None] = Future()

    def run() -> None:
        try:
            work()
            future.set_result(None)
        except BaseException as error:  # noqa: BLE001  # raised by Future.result
            future.set_exception(error)

    threading.Thread(target=run, name="det-ring", daemon=True).start()
    return future
