"""Emulator of the service, which runs in a thread of this process on a free port of the loopback interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer

import pytest
from gcp_storage_emulator.server import Server
from gcp_storage_emulator.storage import Storage


@contextmanager
def emulator(bucket: str) -> Iterator[tuple[str, Server]]:
    """Start the emulator with one bucket, yield its address and its server, and stop it at the end."""
    with pytest.MonkeyPatch.context() as patch:
        # Its backlog of 5 connections is too short for the threads of one client. At each request, it would also
        # serialize the metadata of all objects, although it keeps them in memory.
        patch.setattr(HTTPServer, "request_queue_size", 128)
        patch.setattr(Storage, "_write_config_to_file", lambda storage: None)
        with Server("127.0.0.1", 0, in_memory=True, default_bucket=bucket) as server:
            yield f"http://127.0.0.1:{server._api._httpd.server_address[1]}", server
