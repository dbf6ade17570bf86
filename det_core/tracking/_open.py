"""Opening of the tracking store that a URL denotes."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from det_core.errors import StoreUnsuitable, TrackingError
from det_core.home import default_master, home_directory

if TYPE_CHECKING:
    from sqlalchemy import URL

    from det_core.interfaces.tracking import TrackingStore
    from det_core.tracking._database import Database

_ACCEPTED = (
    "sqlite:////absolute/path/det.db, postgresql://user:password@host/database, or https://host:port of a det server"
)
AGENT_URL = "agent:"
"""URL of the tracking store that workers on other hosts use through their agent."""
AGENT_SOCKET = "DET_AGENT_SOCKET"
"""Environment variable of workers with the path of their agent's socket."""


def open_store(url: str | None = None, *, wait: float = 60.0) -> TrackingStore:
    """Open the tracking store, and create or upgrade its database if needed.

    Args:
        url: ``sqlite:////absolute/path/det.db``, ``postgresql://…``, or the URL of a det server, which is
            ``https://host:port``, or ``http://127.0.0.1:port`` on the same host. None stands for the URL in
            ``DET_MASTER`` or ``DET_MASTER_ADDR``, else for ``det.db`` in `home_directory`. ``agent:`` stands for
            the store of the runner in a worker whose agent forwards the calls.
        wait: number of seconds to wait for a database that is locked or unavailable, or for a server.

    Raises:
        StoreUnsuitable: the database is a SQLite file on a network file system.
        StoreCorrupt: the file is damaged, is not a database, or was written by a newer release.
        StoreBusy: the database stayed locked or unavailable, or the server unavailable.
        TrackingError: the URL is invalid, or the database cannot be opened or written.
    """
    url = url or default_master() or default_url()
    if url == AGENT_URL:
        return _open_agent_store(wait)
    if is_server_url(url):
        from det_core.tracking.remote import open_server_store

        return open_server_store(url, wait=wait)
    from det_core.tracking._sql_store import SqlTrackingStore

    return SqlTrackingStore(_database(url, wait))


def open_existing_store(url: str) -> TrackingStore:
    """Open a tracking store that another process has created.

    Args:
        url: as for `open_store`.

    Raises:
        StoreUnsuitable: the database is a file that does not exist on this host.
        TrackingError: as `open_store`.
    """
    file = database_file(url)
    if file and not file.exists():
        raise StoreUnsuitable(
            f"the tracking store {url} is a file that does not exist on {socket.gethostname()}: "
            "report on the chief (rank 0) only, or use a PostgreSQL database"
        )
    return open_store(url)


def is_server_url(url: str) -> bool:
    """Return whether a URL denotes a det server, and not a database."""
    return url.lower().startswith(("http://", "https://"))


def det_command(url: str) -> str:
    """Return the beginning of commands that use a tracking store, such as ``det -m https://det.example.org``."""
    return f"det -m {url}" if is_server_url(url) else "det"


def default_url() -> str:
    """Return the URL of the embedded tracking store."""
    return file_url(home_directory() / "det.db")


def file_url(path: Path) -> str:
    """Return the URL of a database file, the inverse of `database_file`."""
    # SQLAlchemy 2.0, the newest release for Python 3.10, neither quotes nor unquotes paths.
    return f"sqlite:///{quote(str(path))}"


def database_file(url: str) -> Path | None:
    """Return the path of the database file that a URL names, or None if it names another store.

    Raises:
        TrackingError: the URL does not name a file, or has more than the path of a file.
    """
    scheme, _, rest = url.partition("://")
    if scheme not in ("sqlite", "sqlite+pysqlite"):
        return None
    host, _, path = rest.partition("/")
    if "?" in rest:
        as_path = url.replace("?", "%3F")
        raise TrackingError(f"{url!r} cannot have options after '?'; if the path contains a '?', write: {as_path}")
    if host:
        raise TrackingError(f"{url!r} names the host {host!r}; if this is a directory, write: {scheme}:////{rest}")
    if path in ("", ":memory:"):
        raise TrackingError("the tracking store needs a file: sqlite:////absolute/path/det.db")
    file = Path(unquote(path))
    try:
        return file.expanduser().absolute()
    except RuntimeError:
        user = file.parts[0].removeprefix("~")
        raise TrackingError(
            f"{url!r}: there is no user {user!r} of this host; write sqlite:////absolute/path"
        ) from None


def _open_agent_store(wait: float) -> TrackingStore:
    path = os.environ.get(AGENT_SOCKET)
    if not path:
        raise TrackingError(
            f"the tracking store {AGENT_URL} is that of a runner on another host, and {AGENT_SOCKET} is not set; "
            "use it only in the processes of a trial, whose agent sets the variable"
        )
    from det_core.tracking.remote import open_agent_store

    return open_agent_store(path, url=AGENT_URL, wait=wait)


def _database(url: str, wait: float) -> Database:
    if file := database_file(url):
        from det_core.tracking._sqlite import Sqlite

        return Sqlite(file, file_url(file), wait)
    from det_core.tracking._postgresql import Postgresql

    return Postgresql(_parse(url), wait)


def _parse(url: str) -> URL:
    """Parse the URL of a PostgreSQL database."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # such as a port that is no number
        *user, address = re.sub("password=[^&]*", "password=***", url).rsplit("@", maxsplit=1)
        shown = "***@" * len(user) + address
        raise TrackingError(f"{shown!r} is not a database URL. Accepted: {_ACCEPTED}.") from None
    if parsed.drivername not in ("postgresql", "postgresql+psycopg"):
        raise TrackingError(f"{parsed.drivername!r} is not a supported database. Accepted: {_ACCEPTED}.")
    if password := parsed.query.get("password"):  # where texts show it
        parsed = parsed.difference_update_query(["password"]).set(password=str(password))
    return parsed
