"""Frames that are sent over a link."""

from __future__ import annotations

import functools
import struct
from typing import Final

from det_core.comm._payload import (
    SMALL,
    Buffer,
    Payload,
    SharedPayload,
    pack_payloads,
    pack_unshared_payloads,
    share_payload,
    view_payload,
)

DATA, MANY, NUDGE, FAIL, NOTICE = range(5)
"""Kinds of frames: one payload, several (see `pack_payloads`), the call in which a peer waits, an error, or a text."""

HEADER: Final = struct.Struct("!BBH4xQQ")
"""Kind, op of the call, number of attached files, seq of the call, and number of bytes that follow."""

MOST_FILES: Final = 16
"""Maximum number of files in one frame. The kernel limits the files of a user in transit (unix(7), ETOOMANYREFS)."""


class Message:
    """Frame that is built once and can be sent to any number of peers.

    Args:
        kind: kind of the frame.
        op: number of the collective.
        seq: number of the call.
        payload: one payload, or the payloads of several workers by number.
    """

    def __init__(self, kind: int, op: int, seq: int, payload: Payload | dict[int, Payload] = b"") -> None:
        self._head, self._payload = (kind, op, seq), payload
        self.small: bytes | None = None
        """Whole frame, or None if it is large."""
        if isinstance(payload, dict) and sum(map(len, payload.values())) <= SMALL:
            payload = pack_payloads(payload)
        if not isinstance(payload, dict) and len(payload) <= SMALL:
            self.small = HEADER.pack(kind, op, 0, seq, len(payload)) + view_payload(payload)

    @functools.cached_property
    def copied(self) -> tuple[bytes, Buffer]:
        """Frame for a peer on another host, in two parts."""
        data = pack_payloads(self._payload) if isinstance(self._payload, dict) else view_payload(self._payload)
        return self._header(0, len(data)), data

    @functools.cached_property
    def shared(self) -> tuple[bytes, list[SharedPayload]]:
        """Frame for a peer on this host, as bytes and as files with the rest."""
        if not isinstance(self._payload, dict):
            return self._header(1, 0), [share_payload(self._payload)]
        entries = {key: share_payload(entry) if len(entry) > SMALL else entry for key, entry in self._payload.items()}
        rest, files = pack_unshared_payloads(entries)
        if len(files) > MOST_FILES or len(rest) > 2 * SMALL:
            rest, files = b"", [share_payload(pack_payloads(entries))]
        return self._header(len(files), len(rest)) + rest, files

    def _header(self, files: int, size: int) -> bytes:
        kind, op, seq = self._head
        return HEADER.pack(kind, op, files, seq, size)
