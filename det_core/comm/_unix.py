"""Unix sockets that only this user can reach."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import socket
import stat
import struct
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from det_core.errors import CommError

_IDENTITY: Final = (
    "DET_COMM_KEY",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
)
"""Environment variables that differ between two jobs on one host."""
_LOCKED: Final = 60.0
"""Seconds to wait for the lock of the directory."""
_LONGEST: Final = 60
"""Maximum length of the parent directory in bytes, so that a socket's name has room (108 in all, 104 on macOS)."""


class UnixTransport:
    """Connections within this host, to processes of the same user."""

    def fresh(self) -> str:
        """Return a new path to listen at."""
        return str(_socket_directory() / uuid.uuid4().hex[:24])

    def address_of(self, sock: socket.socket) -> str:
        """Return the path of a listening socket."""
        return str(sock.getsockname())

    def listen(self, path: str) -> socket.socket:
        """Listen at ``path``, in place of a socket that a dead process has left there.

        Raises:
            CommError: a living process listens there, or other users can access the directory.
        """
        with _private_directory(Path(path).parent), contextlib.ExitStack() as undo:
            if _is_alive(path):
                raise CommError(
                    "another job of yours on this host is meeting at the same port; "
                    "pass another port_offset to the DistributedContext of one of them"
                )
            Path(path).unlink(missing_ok=True)
            sock = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            sock.bind(path)
            sock.listen(socket.SOMAXCONN)
            undo.pop_all()
        return sock

    def accept(self, sock: socket.socket) -> socket.socket:
        """Return the connection of a peer that runs as this user.

        Raises:
            PermissionError: the peer runs as another user.
        """
        if (uid := _peer_uid(sock)) != os.getuid():
            raise PermissionError(f"the peer is user {uid}, this is user {os.getuid()}")
        return sock

    def connect(self, path: str, timeout: float) -> socket.socket:
        """Connect to the peer that listens at ``path``, with a time limit of ``timeout`` seconds.

        Raises:
            OSError: no process of this user listens there.
        """
        with contextlib.ExitStack() as undo:
            sock = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            sock.settimeout(timeout)
            sock.connect(path)
            self.accept(sock)
            undo.pop_all()
        return sock

    def forget(self, path: str) -> None:
        """Remove the socket at ``path``, so that nobody else connects."""
        Path(path).unlink(missing_ok=True)


def rendezvous_path(port: int, cross_rank: int) -> str:
    """Return the path at which the workers of this job and machine meet. All of them compute the same one."""
    identity = repr([port, cross_rank, *map(os.environ.get, _IDENTITY)])
    return str(_socket_directory() / hashlib.sha256(identity.encode()).hexdigest()[:24])


def _socket_directory() -> Path:
    parent = tempfile.gettempdir()
    return Path(parent if len(os.fsencode(parent)) <= _LONGEST else "/tmp", f"det-{os.getuid()}")  # noqa: S108


@contextlib.contextmanager
def _private_directory(directory: Path) -> Iterator[None]:
    """Create a directory that only this user can access, and lock it while the block runs."""
    directory.mkdir(mode=0o700, exist_ok=True)
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise CommError(f"{directory} should be a directory of yours: {error.strerror}; remove it") from error
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise CommError(
                f"{directory} belongs to user {found.st_uid} and has mode {stat.S_IMODE(found.st_mode):o}; expected "
                f"user {os.getuid()} and mode 700; correct it, or set TMPDIR to a directory of yours"
            )
        _lock(descriptor, directory)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, directory: Path) -> None:
    end = time.monotonic() + _LOCKED
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > end:
                raise CommError(
                    f"{directory} has been locked for {_LOCKED:g} s; "
                    f"a stopped process may hold the lock, find it with: fuser -v {directory}"
                ) from error
            time.sleep(0.005)


def _is_alive(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        return sock.connect_ex(path) not in (errno.ENOENT, errno.ECONNREFUSED)


def _peer_uid(sock: socket.socket) -> int:
    if not hasattr(socket, "SO_PEERCRED"):
        return os.getuid()  # only the mode of the directory protects
    credentials = struct.Struct("3i")
    _, uid, _ = credentials.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    return int(uid)
