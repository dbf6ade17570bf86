"""Tests of the beginning and the end of an observer."""

from __future__ import annotations

import threading

import psutil
import pytest

from det_testing.observer._events import send_worker_events
from det_testing.observer._observer_suite import ObserverSuite, OpenStream

_ROUNDS = 5


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
        assert threading.active_count() < threads + _ROUNDS, f"threads were left: {threading.enumerate()}"
        assert process.num_fds() < files + _ROUNDS, f"files were left open: {process.open_files()}"
