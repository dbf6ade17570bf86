"""Calls of the tracking store that a process executes itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.remote._access import Caller, RunAccess
from det_core.tracking.remote._remote_store import answer_call


class OwnCalls:
    """Channel for `open_remote_store` that opens the store at the first call.

    Args:
        open_store: function that opens the store.
        run: the run to which the calls are bound. None permits every call.
    """

    def __init__(self, open_store: Callable[[], TrackingStore], run: RunAccess | None = None) -> None:
        self._open_store = open_store
        self._run = run
        self._opening = threading.Lock()
        self._store: TrackingStore | None = None
        self._caller: Caller | None = None

    def call(self, method: str, body: bytes) -> bytes:
        """Execute a call, and return the answer. Raises TrackingError if the store cannot be opened."""
        with self._opening:
            store = self._store = self._store or self._open()
        return answer_call(store, method, body, caller=self._caller)

    def close(self) -> None:
        """Close the store, if it was opened."""
        if self._store is not None:
            self._store.close()

    def _open(self) -> TrackingStore:
        store = self._open_store()
        if self._run:
            self._caller = Caller(user=store.experiment(self._run.experiment_id).owner, run=self._run)
        return store
