"""Comparison of the release of a client with that of the server."""

from __future__ import annotations

from collections.abc import Mapping

from det_core.version import __version__
from det_server._refusal import RefusedError
from det_server._response_headers import VERSION_HEADER

_LONGEST = 30


def check_client_version(headers: Mapping[str, str]) -> None:
    """Check that the client has a compatible release. Clients that do not name theirs are admitted.

    Raises:
        RefusedError: the releases are incompatible. The message says which side to upgrade.
    """
    given = headers.get(VERSION_HEADER)
    if given is None:
        return
    theirs, ours = _series(given), _series(__version__)
    if theirs == ours:
        return
    side = "the client" if theirs is not None and theirs < (ours or ()) else "the server"
    hint = "upgrade the client" if side == "the client" or theirs is None else "upgrade the server"
    command = f"pip install 'det-core=={__version__}'" if hint == "upgrade the client" else "pip install -U det-server"
    raise RefusedError(
        426, f"the client has det {given[:_LONGEST]}, and the server has {__version__}; {hint}, with: {command}"
    )


def _series(version: str) -> tuple[int, ...] | None:
    """Return the major and minor number of a release, or None if it is malformed."""
    parts = version[:_LONGEST].split(".")[:2]
    if len(parts) < 2 or not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    return tuple(map(int, parts))
