"""URLs of SQLite databases, which are paths of files in which all special characters are quoted."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

from det_core.errors import TrackingError


def file_url(path: Path) -> str:
    """Return the URL of a database file, the inverse of `database_file`."""
    # SQLAlchemy 2.0, the newest for Python 3.10, neither quotes nor unquotes paths.
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
    return Path(unquote(path)).expanduser().absolute()
