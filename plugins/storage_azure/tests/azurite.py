"""Azurite, the emulator of Azure Blob Storage, as a child of this process."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from det_testing.requirements import skip_or_fail_in_ci

from tests.comm.job import free_port

PROGRAM = Path(__file__).parents[3] / ".cache/azurite/node_modules/.bin/azurite-blob"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Key of the account, which Azurite's documentation publishes."""
_LIMIT = 60.0


class Azurite:
    """Running emulator, which can be stopped and started again with the same data.

    Args:
        directory: directory of its data.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()
        self.account_url = f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def start(self) -> None:
        options = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--location", str(self._directory)]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(PROGRAM), *options, "--blobHost", "127.0.0.1", "--blobPort", str(self.port)],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _LIMIT
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), 5).close()
            except OSError:
                assert self._process.poll() is None and time.monotonic() < deadline, "Azurite did not start"
                time.sleep(0.1)

    def stop(self, number: int = signal.SIGTERM) -> None:
        self._process.send_signal(number)
        self._process.wait(_LIMIT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)


@contextmanager
def running_azurite(directory: Path) -> Iterator[Azurite]:
    """Run the emulator during the block. If it is not installed, the test is skipped, and fails in CI."""
    if not PROGRAM.exists():
        skip_or_fail_in_ci("no Azurite; install it: make .cache/azurite/.installed")
    server = Azurite(directory)
    server.start()
    try:
        yield server
    finally:
        server.stop(signal.SIGKILL)
