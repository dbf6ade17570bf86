"""Tests of the beginning and the end of an observer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psutil
import pytest

from det_testing.observer._events import send_worker_events
from det_testing.observer._observer_suite import ObserverSuite, OpenStream

_ROUNDS = 5
_SECONDS = 3.0


class ObserverLifeCycleTests(ObserverSuite):
    """Tests that an observer leaves nothing behind."""

    def test_it_can_be_closed_without_events(self, open_stream: OpenStream, caplog: pytest.LogCaptureFixture) -> None:
        """A process may end before anything has happened."""
        for place in ("runner", "worker", "client"):
            open_stream(place).close()
        assert self.complaints(caplog) == []

    def test_close_releases_what_open_acquired(self, open_stream: OpenStream) -> None:
        """A process may have many observers one after another, such as a notebook that trains again and again."""

        def once() -> None:
            stream = open_stream()
            send_worker_events(stream)
            stream.close()

        once()  # libraries may open files for as long as the process lives
        process = psutil.Process()
        threads, files = threading.active_count(), process.num_fds()
        for _ in range(_ROUNDS):
            once()
        assert _falls_below(threads + _ROUNDS, threading.active_count), f"threads were left: {threading.enumerate()}"
        assert _falls_below(files + _ROUNDS, process.num_fds), f"files were left open: {process.open_files()}"


def _falls_below(limit: int, count: Callable[[], int]) -> bool:
    """Return whether a number falls below a limit within a few seconds, in which clients end their own threads."""
    deadline = time.monotonic() + _SECONDS
    while count() >= limit and time.monotonic() < deadline:
        time.sleep(0.05)
    return count() < limit
