"""The record as the workers see it that seldom need it."""

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


def open_later(url: str) -> TrackingStore:
    """A record that somebody else has made, opened by the first use.

    Args:
        url: of a database that exists.

    Raises:
        StoreUnsuitable: later, if it is a file and this host does not see it.
    """
    return cast("TrackingStore", _Later(url))


class _Later:
    def __init__(self, url: str) -> None:
        self.url = url
        self._opening = threading.Lock()
        self._store: TrackingStore | None = None

    def __getattr__(self, name: str) -> Any:
        with self._opening:
            if self._store is None:
                if self.url.startswith(_FILE) and not Path(self.url.removeprefix(_FILE)).exists():
                    raise StoreUnsuitable(
                        f"the record is {self.url}, a file that {socket.gethostname()} does not see: let the chief "
                        "(rank 0) report, or keep the record in a PostgreSQL database"
                    )
                self._store = open_store(self.url)
        return getattr(self._store, name)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
