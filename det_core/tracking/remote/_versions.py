"""Comparison of the versions of a client and a server."""

from __future__ import annotations

import re

_MINOR = re.compile(r"(\d{1,9})\.(\d{1,9})(\..*)?")


def explain_version_mismatch(client: str, server: str) -> str | None:
    """Return why a client and a server cannot work together and which one to upgrade, or None if they can.

    They can if they differ at most after the minor version.

    Args:
        client: version of det-core in the client.
        server: version of det-core in the server.
    """
    ours, theirs = _minor(client), _minor(server)
    if ours == theirs:
        return None
    versions = f"the server runs det {server} and the client det {client}"
    if ours is None or (theirs and ours < theirs):
        return f"{versions}; upgrade the client: pip install -U det-core"
    fitting = f", or install that client here: pip install 'det-core=={theirs[0]}.{theirs[1]}.*'" if theirs else ""
    return f"{versions}; upgrade the server, there with pip install -U det-server{fitting}"


def _minor(version: str) -> tuple[int, int] | None:
    found = _MINOR.fullmatch(version)
    return (int(found[1]), int(found[2])) if found else None
