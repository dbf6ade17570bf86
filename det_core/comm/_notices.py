"""Short texts from any worker to the chief, at any time, beside the collectives."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterable

from det_core.comm._group import Group
from det_core.comm._link import Gone, Link
from det_core.comm._message import NOTICE, Message
from det_core.comm._payload import view
from det_core.errors import CommError, PeerLost


class Notices:
    """Passes notices up the tree. A worker with others below it listens to them in a thread.

    Args:
        group: used for nothing else from now on.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._callbacks: list[Callable[[str], None]] = []
        self._lock = threading.Lock()
        if group.up and group.down:
            self._start()

    def send(self, text: str) -> None:
        """Let the chief know. On the chief itself the listeners are called at once.

        Raises:
            PeerLost: there is nobody to hear it.
        """
        up = self._group.up
        if up is None:
            for callback in self._callbacks:
                callback(text)
            return
        with self._lock:
            try:
                up.send(Message(NOTICE, 0, 0, text.encode()), _hurry)
            except Gone:
                raise PeerLost(f"{up.peer} is gone and cannot hear {text!r}", up.peer.rank) from None

    def listen(self, callback: Callable[[str], None]) -> None:
        """On the chief: call back with every notice, those sent before included, from another thread."""
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
                except Gone:
                    poller.unregister(descriptor)
                    del links[descriptor]
                except CommError:
                    return  # those who should hear are gone, which the next collective will say
            ready = []

    def _pass_on(self, link: Link) -> None:
        while True:
            self.send(bytes(view(link.receive(_be_patient)[3])).decode())
            if not link.is_readable():
                return


def _be_patient(links: Iterable[Link]) -> None:
    """The rest of a text follows at once."""


def _hurry(links: Iterable[Link]) -> None:
    raise CommError(f"{next(iter(links)).peer} does not take notices")
