"""Comparison of the release of a client with that of the server."""

from __future__ import annotations

from collections.abc import Mapping

from det_core.tracking.remote import explain_version_mismatch
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
    mismatch = explain_version_mismatch(given[:_LONGEST], __version__) if given is not None else None
    if mismatch is not None:
        raise RefusedError(426, mismatch)
