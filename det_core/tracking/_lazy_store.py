"""Tracking store that is opened on first use, for workers that seldom need it."""

from __future__ import annotations

import socket
import threading
from operator import attrgetter

from det_core.errors import StoreUnsuitable
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking._open import database_file, open_store


def open_lazy_store(url: str) -> TrackingStore:
    """Return a tracking store that is opened on first use. Another process must have created it.

    The first use raises StoreUnsuitable if the database is a file that does not exist on this host.

    Args:
        url: URL of an existing database, as for `open_store`.
    """
    store: TrackingStore = _LazyStore(url)
    return store


class _Opening:
    """State of a `_LazyStore`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._lock = threading.Lock()
        self._store: TrackingStore | None = None

    @property
    def _opened(self) -> TrackingStore:
        """The store itself, which is opened here if it is not open."""
        with self._lock:
            if self._store is None:
                file = database_file(self.url)
                if file and not file.exists():
                    raise StoreUnsuitable(
                        f"the tracking store {self.url} is a file that does not exist on {socket.gethostname()}: "
                        "report on the chief (rank 0) only, or use a PostgreSQL database"
                    )
                self._store = open_store(self.url)
            return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


# Made from the interface, so that a method added there needs no line here.
_LazyStore = type(
    "_LazyStore",
    (_Opening, TrackingStore),
    {name: property(attrgetter(f"_opened.{name}")) for name in TrackingStore.__abstractmethods__ - {"close"}},
)
