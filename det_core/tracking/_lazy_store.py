"""Tracking store that is opened on first use, for workers that seldom need it."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from det_core.errors import StoreUnsuitable
from det_core.tracking._open import open_store

if TYPE_CHECKING:
    from det_core.interfaces.tracking import TrackingStore

_FILE = "sqlite:///"


def open_lazy_store(url: str) -> TrackingStore:
    """Return a tracking store that is opened on first use. Another process must have created it.

    The first use raises StoreUnsuitable if the database is a file that does not exist on this host.

    Args:
        url: URL of an existing database, as for `open_store`.
    """
    return cast("TrackingStore", _LazyStore(url))


class _LazyStore:
    """Proxy that opens the tracking store at the first access to one of its attributes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opening = threading.Lock()
        self._store: TrackingStore | None = None

    def __getattr__(self, name: str) -> Any:
        with self._opening:
            if self._store is None:
                if self.url.startswith(_FILE) and not Path(self.url.removeprefix(_FILE)).exists():
                    raise StoreUnsuitable(
                        f"the tracking store {self.url} is a file that does not exist on {socket.gethostname()}: "
                        "report on the chief (rank 0) only, or use a PostgreSQL database"
                    )
                self._store = open_store(self.url)
        return getattr(self._store, name)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
