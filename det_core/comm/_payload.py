"""What workers tell each other: objects as bytes, the large ones in memory that both sides see."""

from __future__ import annotations

import mmap
import os
import pickle
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

Buffer: TypeAlias = "bytes | memoryview"
Payload: TypeAlias = "Buffer | Shared"

SMALL: Final = 1 << 15
"""Bytes up to which a payload is copied into the connection rather than shared."""

CAN_SHARE: Final = hasattr(os, "memfd_create")
"""Whether this system has anonymous files."""

_PROTOCOL: Final = pickle.HIGHEST_PROTOCOL
_MAP: Final = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)


class Shared:
    """A payload in an anonymous file, which goes to peers of this host without a copy.

    The file lives as long as anybody holds a descriptor or a view of it.
    """

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def write(cls, parts: Iterable[Buffer]) -> Shared:
        payload = cls(os.memfd_create("det"))
        for part in parts:
            rest = memoryview(part)
            while rest:
                rest = rest[os.write(payload.descriptor, rest) :]
        return payload

    def view(self) -> memoryview:
        return memoryview(mmap.mmap(self.descriptor, 0, _MAP, mmap.PROT_READ))

    def __len__(self) -> int:
        return os.fstat(self.descriptor).st_size

    def __del__(self) -> None:
        os.close(self.descriptor)


def view(payload: Payload) -> Buffer:
    """Its bytes, in the memory of this process."""
    return payload.view() if isinstance(payload, Shared) else payload


def shared(payload: Payload) -> Shared:
    """The same payload in an anonymous file."""
    return payload if isinstance(payload, Shared) else Shared.write([payload])


class _Pieces(list[Any]):
    write = list.append


class _Pickler(threading.local):
    def __init__(self) -> None:
        self.pieces = _Pieces()
        self.pickler = pickle.Pickler(self.pieces, _PROTOCOL)


_local: Final = _Pickler()


def dumps(stuff: Any) -> Payload:
    """Pickle an object, in pieces, so that large bytes and arrays are not copied into one more buffer."""
    pickler, pieces = _local.pickler, _local.pieces  # made once: that costs more than to pickle most objects
    try:
        pickler.dump(stuff)
        return pieces[0] if len(pieces) == 1 else _join([_raw(piece) for piece in pieces])
    finally:
        pickler.clear_memo()  # it kept alive what the pieces are views of
        pieces.clear()


def _raw(piece: Any) -> Buffer:
    return piece.raw() if isinstance(piece, pickle.PickleBuffer) else piece


def _join(parts: list[Buffer]) -> Payload:
    return Shared.write(parts) if CAN_SHARE and sum(map(len, parts)) > SMALL else b"".join(parts)


def loads(payload: Payload) -> Any:
    """Unpickle what a peer pickled: a process of this user, or a holder of the key."""
    return pickle.loads(payload if type(payload) is bytes else view(payload))  # noqa: S301


def loads_all(payloads: Iterable[Payload], mine: int, own: Any) -> list[Any]:
    """Unpickle everybody's; at index ``mine`` comes ``own``."""
    return [
        own if index == mine else pickle.loads(payload if type(payload) is bytes else view(payload))  # noqa: S301
        for index, payload in enumerate(payloads)
    ]


def pack(entries: Mapping[int, Payload]) -> bytes:
    """Several workers' payloads as one."""
    large = {key: pickle.PickleBuffer(view(entry)) for key, entry in entries.items() if type(entry) is not bytes}
    return pickle.dumps({**entries, **large}, _PROTOCOL)


def pack_rest(entries: Mapping[int, Payload]) -> tuple[bytes, list[Shared]]:
    """Several workers' payloads as one, without those that are shared; and these."""
    files = [entry for entry in entries.values() if isinstance(entry, Shared)]
    rest = {key: None if isinstance(entry, Shared) else entry for key, entry in entries.items()}
    return pickle.dumps(rest, _PROTOCOL), files


def unpack(payload: Payload, files: Sequence[Shared] = ()) -> dict[int, Payload]:
    """What was packed, in the same order; ``files`` are those that `pack_rest` left out."""
    entries: dict[int, Any] = loads(payload)
    if files:
        left_out = iter(files)
        return {key: next(left_out) if entry is None else entry for key, entry in entries.items()}
    return entries
