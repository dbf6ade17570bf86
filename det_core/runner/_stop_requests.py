"""Requests to pause or end a running experiment, made by signal or through the tracking store."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from det_core.interfaces.records import REQUESTS, State, stronger_request
from det_core.interfaces.tracking import TrackingStore

_POLL_EVERY = 1.0
"""Seconds between two reads of the tracking store."""


class StopRequests:
    """Requests to a runner. The strongest one counts.

    The first SIGINT or SIGTERM requests a pause, the second a kill. SIGHUP only requests a pause, because a closed
    terminal may send it more than once and together with SIGTERM.

    Args:
        store: the tracking store, which `poll` reads.
        experiment_id: the experiment of the runner.
    """

    def __init__(self, store: TrackingStore, experiment_id: int) -> None:
        self.current: State | None = None
        """Strongest request so far: PAUSED, STOPPING_CANCELED, STOPPING_KILLED, or None without a request."""
        self.came: list[int] = []
        """Numbers of the received signals, oldest first."""
        self._store = store
        self._experiment_id = experiment_id
        self._poll_at = 0.0

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Catch SIGINT, SIGTERM and SIGHUP during the block, in the main thread only.

        Under ``nohup``, SIGHUP stays ignored.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        caught = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            caught.append(signal.SIGHUP)
        previous = {number: signal.signal(number, self._on_signal) for number in caught}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def poll(self) -> State | None:
        """Read the tracking store at most once per second, and return the current request."""
        if time.monotonic() >= self._poll_at:
            self._poll_at = time.monotonic() + _POLL_EVERY
            state = self._store.experiment(self._experiment_id).state
            if state in REQUESTS:
                self._raise_to(state)
        return self.current

    def repeat(self, state: State) -> None:
        """Take over a request that an earlier runner has not carried out."""
        self._raise_to(state)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        only_hung_up = set(self.came) == {signal.SIGHUP}
        again = self.current and number != signal.SIGHUP and not only_hung_up
        self.came.append(number)
        self._raise_to(State.STOPPING_KILLED if again else State.PAUSED)

    def _raise_to(self, state: State) -> None:
        self.current = stronger_request(self.current, state)
