"""Sockets that forked children close, because an open copy would hide the death of this process from its peers."""

from __future__ import annotations

import os
import socket
import weakref

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def close_in_children(sock: socket.socket) -> None:
    """Close the copy of ``sock`` in all children that are forked from now on."""
    _sockets.add(sock)


def _drop() -> None:
    for sock in list(_sockets):
        if sock.fileno() >= 0:
            os.close(sock.detach())


os.register_at_fork(after_in_child=_drop)
