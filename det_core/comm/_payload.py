"""Conversion of objects to bytes, in memory shared by both sides if they are large."""

from __future__ import annotations

import mmap
import os
import pickle
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

Buffer: TypeAlias = "bytes | memoryview"
"""Bytes in the memory of this process."""

Payload: TypeAlias = "Buffer | SharedPayload"
"""Bytes that one worker sends to others."""

SMALL: Final = 1 << 16
"""Maximum size in bytes of payloads that are copied into the connection rather than shared."""

CAN_SHARE: Final = hasattr(os, "memfd_create")
"""Whether this system has anonymous files."""

_PROTOCOL: Final = pickle.HIGHEST_PROTOCOL
_MAP: Final = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)


class SharedPayload:
    """Payload in an anonymous file, which peers on this host receive without a copy.

    The file exists as long as any process holds a descriptor or a view of it.

    Args:
        descriptor: the file descriptor, which the payload owns from now on.
    """

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def write(cls, parts: Iterable[Buffer]) -> SharedPayload:
        """Write the parts of a payload to a new file."""
        payload = cls(os.memfd_create("det"))
        for part in parts:
            rest = memoryview(part)
            while rest:
                rest = rest[os.write(payload.descriptor, rest) :]
        return payload

    def view(self) -> memoryview:
        """Map the file into memory, read-only."""
        return memoryview(mmap.mmap(self.descriptor, 0, _MAP, mmap.PROT_READ))

    def __len__(self) -> int:
        return os.fstat(self.descriptor).st_size

    def __del__(self) -> None:
        os.close(self.descriptor)


def view_payload(payload: Payload) -> Buffer:
    """Return the bytes of a payload in the memory of this process."""
    return payload.view() if isinstance(payload, SharedPayload) else payload


def share_payload(payload: Payload) -> SharedPayload:
    """Return a payload in an anonymous file."""
    return payload if isinstance(payload, SharedPayload) else SharedPayload.write([payload])


class _Pieces(list[Any]):
    write = list.append


class _Pickler(threading.local):
    def __init__(self) -> None:
        self.pieces = _Pieces()
        self.pickler = pickle.Pickler(self.pieces, _PROTOCOL)


_local: Final = _Pickler()


def pickle_payload(stuff: Any) -> Payload:
    """Pickle an object. Large bytes and arrays are not copied into an additional buffer."""
    pickler, pieces = _local.pickler, _local.pieces  # reused, because a new pickler costs more than most objects
    try:
        pickler.dump(stuff)
        return pieces[0] if len(pieces) == 1 else _join([_raw(piece) for piece in pieces])
    finally:
        pickler.clear_memo()  # the memo keeps alive the objects that the pieces are views of
        pieces.clear()


def _raw(piece: Any) -> Buffer:
    return piece.raw() if isinstance(piece, pickle.PickleBuffer) else piece


def _join(parts: list[Buffer]) -> Payload:
    return SharedPayload.write(parts) if CAN_SHARE and sum(map(len, parts)) > SMALL else b"".join(parts)


def unpickle_payload(payload: Payload) -> Any:
    """Unpickle the payload of a peer. A peer is trusted, because it is a process of this user or holds the key."""
    return pickle.loads(payload if type(payload) is bytes else view_payload(payload))  # noqa: S301


def unpickle_payloads(payloads: Iterable[Payload], mine: int, own: Any) -> list[Any]:
    """Unpickle the payloads of all workers, except that at index ``mine``, which is replaced by ``own``."""
    return [
        own if index == mine else pickle.loads(payload if type(payload) is bytes else view_payload(payload))  # noqa: S301
        for index, payload in enumerate(payloads)
    ]


def pack_payloads(entries: Mapping[int, Payload]) -> bytes:
    """Pack the payloads of several workers into one."""
    large = {
        key: pickle.PickleBuffer(view_payload(entry)) for key, entry in entries.items() if type(entry) is not bytes
    }
    return pickle.dumps({**entries, **large}, _PROTOCOL)


def pack_unshared_payloads(entries: Mapping[int, Payload]) -> tuple[bytes, list[SharedPayload]]:
    """Pack the payloads of several workers into one without the shared ones, and return these separately in order."""
    files = [entry for entry in entries.values() if isinstance(entry, SharedPayload)]
    rest = {key: None if isinstance(entry, SharedPayload) else entry for key, entry in entries.items()}
    return pickle.dumps(rest, _PROTOCOL), files


def unpack_payloads(payload: Payload, files: Sequence[SharedPayload] = ()) -> dict[int, Payload]:
    """Unpack payloads in their original order.

    Args:
        payload: the result of `pack_payloads` or `pack_unshared_payloads`.
        files: the shared payloads that `pack_unshared_payloads` has returned separately.
    """
    entries: dict[int, Any] = unpickle_payload(payload)
    if files:
        left_out = iter(files)
        return {key: next(left_out) if entry is None else entry for key, entry in entries.items()}
    return entries
