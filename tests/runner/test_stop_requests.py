"""Requests made by signals."""

from __future__ import annotations

import os
import signal

import pytest

from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner._stop_requests import StopRequests


@pytest.mark.parametrize(
    ("numbers", "request_"),
    [
        ([signal.SIGINT], State.PAUSED),
        ([signal.SIGINT, signal.SIGTERM], State.STOPPING_KILLED),
        ([signal.SIGHUP, signal.SIGHUP], State.PAUSED),
        ([signal.SIGTERM, signal.SIGHUP], State.PAUSED),
        ([signal.SIGHUP, signal.SIGTERM], State.PAUSED),
        ([signal.SIGHUP, signal.SIGINT, signal.SIGINT], State.STOPPING_KILLED),
    ],
)
def test_signals_request_a_pause_then_a_kill(
    store: TrackingStore, numbers: list[signal.Signals], request_: State
) -> None:
    requests = StopRequests(store, 1)
    with requests.signals():
        for number in numbers:
            os.kill(os.getpid(), number)
    assert requests.current is request_
    assert requests.came == numbers


def test_under_nohup_a_closed_terminal_is_ignored(store: TrackingStore) -> None:
    requests = StopRequests(store, 1)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with requests.signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert requests.current is None
