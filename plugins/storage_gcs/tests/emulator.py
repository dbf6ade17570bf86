"""Emulator of the service, which runs as a child process on a free port of the loopback interface."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.comm.job import free_port

# The emulator's backlog of 5 connections is too short for the threads of one client. At each request, it would also
# serialize the metadata of all objects, although it keeps them in memory.
_START = """
import sys
from http.server import HTTPServer
HTTPServer.request_queue_size = 128
from gcp_storage_emulator.__main__ import main
from gcp_storage_emulator.storage import Storage
Storage._write_config_to_file = lambda storage: None
main(["start", "--host", "127.0.0.1", "--port", sys.argv[1], "--in-memory", "--quiet", "--default-bucket", sys.argv[2]])
"""
_LIMIT = 30


@contextmanager
def emulator(bucket: str) -> Iterator[str]:
    """Start the emulator with one bucket, yield its address, and stop it at the end."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, "-c", _START, str(port), bucket])
    try:
        _wait(address, process)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_LIMIT)


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _LIMIT
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the emulator ended with {process.returncode}")
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"the emulator did not start within {_LIMIT} s")
