"""Allgather between machines: each passes on what it got, so every payload crosses every link once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from det_core.comm._link import Link
from det_core.comm._message import Buffer
from det_core.comm._tree import Call

_FITS_BUFFERS: Final = 1 << 14
"""Bytes that TCP takes in without a reader, so that all machines may send before they receive."""


class Ring:
    """This machine's links of a ring.

    Args:
        left: from the previous machine; only received from.
        right: to the next machine; only sent to.
        size: number of machines.
    """

    def __init__(self, left: Link, right: Link, size: int) -> None:
        self.left, self.right = left, right
        self._size = size

    def allgather(self, call: Call, own: Buffer) -> list[Buffer]:
        """The payloads of all machines: this one's, its left neighbour's, and so on."""
        payloads = [own]
        for _ in range(self._size - 1):
            payloads.append(self._pass_on(call, payloads[-1]))
        return payloads

    def _pass_on(self, call: Call, payload: Buffer) -> Buffer:
        if len(payload) <= _FITS_BUFFERS:
            call.send((self.right,), payload)
            return call.receive(self.left)
        sent = _in_thread(lambda: call.send((self.right,), payload))

        def idle(links: Iterable[Link]) -> None:
            call.idle(links)
            if sent.done():
                sent.result()

        received = replace(call, idle=idle).receive(self.left)
        sent.result()
        return received


def _in_thread(work: Callable[[], None]) -> Future[None]:
    future: Future[None] = Future()

    def run() -> None:
        try:
            work()
            future.set_result(None)
        except BaseException as error:  # noqa: BLE001  # raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, name="det-ring", daemon=True).start()
    return future
