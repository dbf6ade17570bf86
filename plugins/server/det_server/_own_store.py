"""Opening of the database of a server, which is never another server."""

from __future__ import annotations

from det_core.errors import DetError
from det_core.interfaces.server_store import ServerStore
from det_core.tracking import default_url, open_store

_DATABASES = ("sqlite:", "sqlite+", "postgresql:", "postgresql+")


def open_own_store(url: str | None) -> ServerStore:
    """Open the tracking store of a server, whatever ``DET_MASTER`` says.

    Args:
        url: URL of the database, or None for the embedded one.

    Raises:
        DetError: the URL is not that of a database, or it cannot be opened.
    """
    if url is not None and not url.startswith(_DATABASES):
        raise DetError(
            f"--store {url.partition('://')[0]}: expected a database, such as --store postgresql://det@db/det, or "
            "leave it out for det.db in DET_HOME"
        )
    store = open_store(url or default_url())
    assert isinstance(store, ServerStore)
    return store
