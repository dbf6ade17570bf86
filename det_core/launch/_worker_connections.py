"""Connections of the workers of one node to their agent."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path

from det_core.core.agent_channel import PREEMPT
from det_core.tracking.remote import StoreCall, requests_store_calls, serve_store_calls

_CLOSE_SECONDS = 10.0
"""Seconds to wait for the end of each thread."""
_RETRY_SECONDS = 0.1
"""Seconds until the next attempt to accept a connection."""


class WorkerConnections:
    """Unix socket on which an agent requests the preemption of its workers and answers their calls.

    Args:
        path: path of the socket.
        call: function that has a call of the tracking store executed.

    Raises:
        OSError: the socket could not be opened.
    """

    def __init__(self, path: Path, call: StoreCall) -> None:
        self._call = call
        self._preempting = False
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._clients: set[socket.socket] = set()
        self._listeners: set[socket.socket] = set()
        """Connections that receive requests for preemption."""
        self._threads: set[threading.Thread] = set()
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._server.bind(str(path))
            self._server.listen()
            self._accepting = threading.Thread(target=self._accept, name="det-agent", daemon=True)
            self._accepting.start()
        except BaseException:
            self._server.close()
            raise

    def preempt(self) -> None:
        """Request that the workers stop, also those that connect later."""
        with self._lock:
            self._preempting = True
            for client in self._listeners:
                _send_preempt(client)

    def disconnect(self) -> None:
        """Close all connections. Workers take this for the end of their agent."""
        self._closing.set()
        _shut(self._server)  # ends accept(), which close() does not
        self._server.close()
        self._accepting.join(_CLOSE_SECONDS)
        with self._lock:
            for client in self._clients:
                _shut(client)

    def close(self) -> None:
        """Close all connections and wait for the end of the threads."""
        self.disconnect()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(_CLOSE_SECONDS)

    def _accept(self) -> None:
        client: socket.socket | None = None
        while not self._closing.is_set():
            try:
                client = client or self._server.accept()[0]
                self._start_to_serve(client)
                client = None
            except (OSError, RuntimeError):  # there is no free descriptor or thread, or the socket was closed
                self._closing.wait(_RETRY_SECONDS)
        if client:
            client.close()

    def _start_to_serve(self, client: socket.socket) -> None:
        thread = threading.Thread(target=self._serve, args=(client,), name="det-agent-client", daemon=True)
        with self._lock:
            thread.start()
            self._clients.add(client)
            self._listeners.add(client)
            self._threads.add(thread)
            if self._preempting:
                _send_preempt(client)

    def _serve(self, client: socket.socket) -> None:
        with client:
            if requests_store_calls(client):
                with self._lock:
                    self._listeners.discard(client)
                serve_store_calls(client, self._call)
            with self._lock:
                self._clients.discard(client)
                self._listeners.discard(client)
                self._threads.discard(threading.current_thread())


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):  # the other side has closed it, or macOS, where closing a listening socket is enough
        connection.shutdown(socket.SHUT_RDWR)


def _send_preempt(client: socket.socket) -> None:
    with suppress(OSError):  # the client has disconnected
        client.sendall(PREEMPT)
