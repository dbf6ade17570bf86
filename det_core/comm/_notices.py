"""Short texts that workers send to the chief at any time, independently of collectives."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterable

from det_core.comm._collectives import Collectives
from det_core.comm._link import Link, LinkClosed
from det_core.comm._message import NOTICE, Message
from det_core.comm._payload import view_payload
from det_core.errors import CommError, PeerLost


class Notices:
    """Notices on their way up the tree. A worker with children reads theirs in a thread.

    Args:
        group: the group of all workers, whose links must not be used for anything else from now on.
    """

    def __init__(self, group: Collectives) -> None:
        self._group = group
        self._callbacks: list[Callable[[str], None]] = []
        self._lock = threading.Lock()
        if group.up and group.down:
            self._start()

    def send(self, text: str) -> None:
        """Send a notice to the chief. On the chief itself, call its callbacks at once.

        Raises:
            PeerLost: the parent of this worker is gone.
            CommError: the parent of this worker does not read notices.
        """
        up = self._group.up
        if up is None:
            for callback in self._callbacks:
                callback(text)
            return
        with self._lock:
            try:
                up.send(Message(NOTICE, 0, 0, text.encode()), _stop_waiting)
            except LinkClosed:
                raise PeerLost(f"{up.peer} is gone and cannot receive the notice {text!r}", up.peer.rank) from None

    def listen(self, callback: Callable[[str], None]) -> None:
        """Register a callback on the chief.

        It is called in a thread with each notice of the other workers, including earlier ones.
        """
        self._callbacks.append(callback)
        if len(self._callbacks) == 1 and self._group.down:
            self._start()

    def _start(self) -> None:
        threading.Thread(target=self._hear, name="det-notices", daemon=True).start()

    def _hear(self) -> None:
        links = {link.fileno(): link for link in self._group.down}
        poller = select.poll()
        for link in links.values():
            poller.register(link, select.POLLIN)
        ready = [descriptor for descriptor, link in links.items() if link.is_ahead()]
        while links:
            for descriptor in ready or [descriptor for descriptor, _ in poller.poll()]:
                try:
                    self._pass_on(links[descriptor])
                except LinkClosed:
                    poller.unregister(descriptor)
                    del links[descriptor]
                except CommError:
                    return  # the parent is gone, which the next collective will report
            ready = []

    def _pass_on(self, link: Link) -> None:
        while True:
            self.send(bytes(view_payload(link.receive(_keep_waiting)[3])).decode())
            if not link.is_readable():
                return


def _keep_waiting(links: Iterable[Link]) -> None:
    """Do nothing, because the rest of a text follows at once."""


def _stop_waiting(links: Iterable[Link]) -> None:
    raise CommError(f"{next(iter(links)).peer} does not read notices")
