"""Renewals of sessions in the background, because writes wait for those of others, and requests must not."""

from __future__ import annotations

import logging
import threading
from datetime import datetime

from det_core.errors import DetError
from det_core.interfaces.server_store import ServerStore

_log = logging.getLogger("det.server")


class SessionRenewals:
    """Sessions that are due for renewal, and the thread that renews them as long as there are any.

    Args:
        store: the tracking store, which has the tokens of sessions.
    """

    def __init__(self, store: ServerStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._due: dict[int, datetime] = {}
        self._thread: threading.Thread | None = None

    def request(self, token_id: int, expires: datetime) -> None:
        """Extend a session soon, and return at once. Requests while it waits for others count once."""
        with self._lock:
            self._due[token_id] = expires
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="det-session-renewals", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while due := self._next():
            token_id, expires = due
            try:
                self._store.extend_access_token(token_id, expires=expires)
            except DetError as error:
                _log.warning("a session was not renewed: %s", error)

    def _next(self) -> tuple[int, datetime] | None:
        with self._lock:
            if self._due:
                return self._due.popitem()
            self._thread = None  # the next request starts another one
            return None
