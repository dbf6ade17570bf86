"""Connection to one peer, an ordered stream of frames."""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import ssl
import time
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from det_core.comm._message import FAIL, HEADER, MOST_FILES, Message
from det_core.comm._payload import CAN_SHARE, SMALL, Buffer, Payload, SharedPayload
from det_core.comm._ranks import Peer
from det_core.errors import CommError, OutOfStep, PeerLate, PeerLost

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def close_in_children(sock: socket.socket) -> None:
    """Close the copy of ``sock`` in all children that are forked from now on.

    An open copy would hide the death of this process from its peers.
    """
    _sockets.add(sock)


def _close_copies() -> None:
    for sock in list(_sockets):
        if sock.fileno() >= 0:
            os.close(sock.detach())


os.register_at_fork(after_in_child=_close_copies)


TICK: Final = 1.0
"""Seconds of waiting for a peer between two checks of everything else."""

_TICK: Final = 1000 * TICK
_PAUSE: Final = 0.01
_CHUNK: Final = 1 << 16
_DESCRIPTOR_SPACE: Final = socket.CMSG_SPACE(MOST_FILES * array("i").itemsize)
_TCP_CLOSED: Final = 7
_AGAIN: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


Frame: TypeAlias = tuple[int, int, int, Payload, Sequence[SharedPayload]]
"""Kind, op, seq, the payload without the parts that are files, and these files in order."""

IdleCallback: TypeAlias = "Callable[[Iterable[Link]], None]"
"""Function called every `TICK` of waiting, with the links waited for. An error that it raises ends the wait."""


class LinkClosed(Exception):
    """Error for a connection that the peer has closed or that is broken.

    Attributes:
        link: the connection.
    """

    def __init__(self, link: Link) -> None:
        super().__init__(str(link.peer))
        self.link = link


class UnexpectedFrame(Exception):
    """Error for a frame of another call.

    Attributes:
        link: the link that received the frame.
        op: number of the collective that the peer has called.
        seq: number of the peer's call.
    """

    def __init__(self, link: Link, op: int, seq: int) -> None:
        super().__init__(str(link.peer))
        self.link, self.op, self.seq = link, op, seq


class Link:
    """Connection that carries frames to and from one peer, over a Unix socket or TLS.

    A link belongs to one thread at a time. Only if its frames go in one direction, other threads may call `close` and
    `is_dead`.

    Args:
        sock: connected and authenticated socket, which the link owns from now on.
        peer: the worker at the other end.

    Attributes:
        peer: the worker at the other end.
        is_remote: whether the connection is encrypted and carries no files, as between hosts.
    """

    def __init__(self, sock: socket.socket, peer: Peer) -> None:
        sock.setblocking(False)
        close_in_children(sock)
        self.peer = peer
        self.is_remote = isinstance(sock, ssl.SSLSocket)
        self.is_sending = self.is_receiving = False
        """Whether the link is in the middle of a frame. After an error there, no other frame can follow."""
        self._socket = sock
        self._ahead, self._at = b"", 0
        self._files: deque[SharedPayload] = deque()
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable.register(sock, select.POLLOUT)

    def fileno(self) -> int:
        """Return the file descriptor, or -1 after `close`."""
        return self._socket.fileno()

    def send(self, message: Message, idle: IdleCallback) -> None:
        """Send one frame, and wait while the buffer of the peer is full.

        Args:
            message: the frame.
            idle: function called during waits.

        Raises:
            LinkClosed: the connection is closed or broken.
            UnexpectedFrame: the peer does not read, but has sent a frame itself.
        """
        self.is_sending = True
        if message.small:
            self._write(message.small, idle)
        elif CAN_SHARE and not self.is_remote:
            data, files = message.shared
            self._write(data, idle, files)
        else:
            for part in message.copied:
                self._write(part, idle)
        self.is_sending = False

    def receive(self, idle: IdleCallback, *, ready: bool = False) -> Frame:
        """Wait for the next frame.

        Args:
            idle: function called during waits.
            ready: whether a poll has just reported that there is data to read.

        Raises:
            LinkClosed: the connection is closed or broken, and all that the peer has sent was read.
            CommError: the peer has given up, for the reason in this error.
        """
        while len(self._ahead) - self._at < HEADER.size:
            self._read_more(idle, ready=ready)
            ready = False
        kind, op, count, seq, size = HEADER.unpack_from(self._ahead, self._at)
        begin = self._at + HEADER.size
        if not count and begin + size <= len(self._ahead) and kind < FAIL:
            self._at = begin + size
            return kind, op, seq, self._ahead[begin : self._at], ()
        self._at = begin
        files = [self._files.popleft() for _ in range(count)]
        if files and not size:
            return kind, op, seq, files[0], ()
        self.is_receiving = True
        payload = self._take(size, idle) if size <= SMALL else self._take_large(size, idle)
        self.is_receiving = False
        if kind == FAIL:
            raise _decode_failure(bytes(payload))
        return kind, op, seq, payload, files

    def fail(self, error: CommError, idle: IdleCallback) -> None:
        """Report to the peer why this worker gives up."""
        self.send(Message(FAIL, 0, 0, _encode_failure(error)), idle)

    def peek(self) -> tuple[int, int, int] | None:
        """Return kind, op and seq of the next frame without consuming it, or None if it has not arrived.

        Raises:
            LinkClosed: the connection is closed or broken, and all that the peer has sent was read.
        """
        while len(self._ahead) - self._at < HEADER.size:
            if not self.is_readable():
                return None
            self._read_more(refuse_to_wait)
        kind, op, _, seq, _ = HEADER.unpack_from(self._ahead, self._at)
        return kind, op, seq

    def is_ahead(self) -> bool:
        """Return whether part of a frame has been read from the socket already, so that a poll does not report it."""
        return len(self._ahead) > self._at or self._has_decrypted()

    def is_readable(self) -> bool:
        """Return whether part of a frame or the end of the stream can be read."""
        return self.is_ahead() or self._is(select.POLLIN)

    def is_writable(self) -> bool:
        """Return whether a small frame can be sent without a wait."""
        return self._is(select.POLLOUT)

    def is_dead(self) -> bool:
        """Return whether the host of the peer no longer answers the kernel. Any thread may call this."""
        if not self.is_remote or self.fileno() < 0 or not hasattr(socket, "TCP_INFO"):
            return False
        return self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSED

    def local_address(self) -> str:
        """Return the address of this host from which the peer was reached."""
        return str(self._socket.getsockname()[0])

    def close(self) -> None:
        """Close the connection. A thread that waits in this link wakes up."""
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not that of SSLSocket, which drops state in use
        self._socket.close()
        self._files.clear()

    def _is(self, event: int) -> bool:
        descriptor = self._socket.fileno()
        if descriptor < 0:
            return True  # closed, which the next use notices
        poller = select.poll()  # a new one, because another thread may wait in ours
        poller.register(descriptor, event)
        return bool(poller.poll(0))

    def _take(self, count: int, idle: IdleCallback) -> bytes:
        while len(self._ahead) - self._at < count:
            self._read_more(idle)
        self._at += count
        return self._ahead[self._at - count : self._at]

    def _take_large(self, count: int, idle: IdleCallback) -> memoryview:
        whole = memoryview(bytearray(count))
        done = min(len(self._ahead) - self._at, count)
        whole[:done] = self._take(done, idle)
        while done < count:
            self._await_reading(idle)
            try:
                got = self._socket.recv_into(whole[done:])
            except _AGAIN:
                continue
            except OSError as error:
                raise LinkClosed(self) from error
            if not got:
                raise LinkClosed(self)
            done += got
        return whole.toreadonly()

    def _read_more(self, idle: IdleCallback, *, ready: bool = False) -> None:
        if not ready:
            self._await_reading(idle)
        try:
            if self.is_remote:
                data = self._socket.recv(_CHUNK)
            else:
                data, ancillary, flags, _ = self._socket.recvmsg(_CHUNK, _DESCRIPTOR_SPACE)
                if ancillary or flags:
                    self._take_files(ancillary, flags)
        except _AGAIN:
            return
        except OSError as error:
            raise LinkClosed(self) from error
        if not data:
            raise LinkClosed(self)
        self._ahead = self._ahead[self._at :] + data if self._at < len(self._ahead) else data
        self._at = 0

    def _take_files(self, ancillary: list[tuple[int, int, bytes]], flags: int) -> None:
        for _, _, descriptors in ancillary:
            self._files.extend(map(SharedPayload, array("i", descriptors)))
        if flags & socket.MSG_CTRUNC:
            raise CommError("a payload could not be received: too many open files; raise `ulimit -n`")

    def _await_reading(self, idle: IdleCallback) -> None:
        if self._has_decrypted():
            return
        while not self._readable.poll(_TICK):
            idle((self,))

    def _has_decrypted(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _write(self, data: Buffer, idle: IdleCallback, files: Iterable[SharedPayload] = ()) -> None:
        """Write all of ``data``, and pass the ``files`` with its first byte."""
        look_at = time.monotonic() + TICK
        while len(data):
            try:
                if not files:
                    sent = self._socket.send(data)
                else:
                    sent, files = socket.send_fds(self._socket, [data], [file.descriptor for file in files]), ()
            except _AGAIN:
                self._await_writing(idle)
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS:
                    raise LinkClosed(self) from error
                time.sleep(_PAUSE)  # too many descriptors of this user are in transit until peers receive them
                if time.monotonic() > look_at:
                    self._look_around(idle)
                    look_at = time.monotonic() + TICK
            else:
                data = memoryview(data)[sent:]

    def _await_writing(self, idle: IdleCallback) -> None:
        while not self._writable.poll(_TICK):
            self._look_around(idle)

    def _look_around(self, idle: IdleCallback) -> None:
        idle((self,))
        if self.is_readable():
            _, op, seq, *_ = self.receive(idle)
            raise UnexpectedFrame(self, op, seq)


def refuse_to_wait(links: Iterable[Link]) -> None:
    """Raise `LinkClosed`, as the `IdleCallback` of reads and writes that must not wait."""
    raise LinkClosed(next(iter(links)))


def _encode_failure(error: CommError) -> bytes:
    return json.dumps([type(error).__name__, str(error), getattr(error, "rank", None)]).encode()


def _decode_failure(data: bytes) -> CommError:
    name, text, rank = json.loads(data)
    if name == OutOfStep.__name__:
        return OutOfStep(text)
    return (PeerLate if name == PeerLate.__name__ else PeerLost)(text, rank)
