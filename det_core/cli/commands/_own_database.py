"""Choice of the database on which a command works itself, instead of through a server."""

from __future__ import annotations

from det_core.errors import TrackingError


def choose_database(given: str | None, *, command: str, option: str) -> str:
    """Return the URL that an option or the environment names, or that of the embedded database.

    Args:
        given: value of the option, or None.
        command: the command, for the error.
        option: the option, for the error.

    Raises:
        TrackingError: it is the URL of a server.
    """
    from det_core.home import default_master
    from det_core.tracking import is_server_url
    from det_core.tracking._open import default_url

    url = given or default_master() or default_url()
    if is_server_url(url):
        raise TrackingError(
            f"{url} is a det server, and {command} works on the database itself; on its host, name that with {option}"
        )
    return url
