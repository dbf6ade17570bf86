"""Calls of the tracking store that a process executes itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from det_core.interfaces.tracking import TrackingStore
    from det_core.tracking.remote._access import Caller


class OwnCalls:
    """Channel for `open_remote_store` that opens the store, and imports what this needs, at the first call.

    Args:
        open_store: function that opens the store, and returns it with the caller whose rights the calls have. None in
            place of the caller permits every call.
    """

    def __init__(self, open_store: Callable[[], tuple[TrackingStore, Caller | None]]) -> None:
        self._open_store = open_store
        self._opening = threading.Lock()
        self._opened: tuple[TrackingStore, Caller | None] | None = None

    def call(self, method: str, body: bytes) -> bytes:
        """Execute a call, and return the answer. Raises TrackingError if the store cannot be opened."""
        from det_core.tracking.remote._answers import answer_call

        with self._opening:
            store, caller = self._opened = self._opened or self._open_store()
        return answer_call(store, method, body, caller=caller)

    def close(self) -> None:
        """Close the store, if it was opened."""
        if self._opened:
            self._opened[0].close()
