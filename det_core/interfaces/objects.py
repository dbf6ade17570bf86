"""What the client of an object store implements: one request per method, over objects named by keys.

det owns everything above them: how many requests at once, large files in parts, retries, checksums, deadlines.
`det_core.storage.ObjectStorage` makes an `interfaces.storage.StorageManager` of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime


class Transient(Exception):
    """A request failed in a way that may pass: a timeout, a broken connection, 5xx, 429. det tries again.

    Args:
        text: what happened, for the user if it never passes; without secrets.
        after: seconds that the server asks to wait; None: it does not say.
    """

    def __init__(self, text: str, after: float | None = None) -> None:
        super().__init__(text)
        self.after = after


@dataclass(frozen=True)
class Object:
    """One entry of a listing.

    Attributes:
        size: in bytes.
        time: of its last write, aware.
    """

    key: str
    size: int
    time: datetime


@dataclass(frozen=True)
class Unfinished:
    """An upload in parts that was begun, and neither completed nor aborted.

    Attributes:
        upload: what `ObjectStore.begin` returned.
        time: of its begin or of its latest part, aware.
    """

    key: str
    upload: str
    time: datetime


class ObjectStore(ABC):
    """A bucket. Methods are called from several threads at once, and make no attempt of their own to retry.

    Each raises `Transient` for what may pass, FileNotFoundError for an object that is not there, and
    `det_core.errors.StorageError` for what a user can act on, in words without secrets: wrong key, no such bucket,
    permission denied, wrong region. Each returns or raises within about a minute, whatever the server does.
    """

    connections: int = 16
    """Requests at once."""
    part_size: int = 8 << 20
    """Bytes of the parts in which larger files go up and down; larger where `most_parts` would not do."""
    most_parts: int = 10_000
    """Parts that one upload may have."""
    batch: int = 1000
    """Keys that one `delete` takes."""

    @abstractmethod
    def put(self, key: str, data: bytes, crc32c: int) -> None:
        """Store an object, replacing what is there; it appears whole or not at all.

        Args:
            data: at most `part_size` bytes; nothing for an empty directory, whose key ends in ``/``.
            crc32c: of the data, for a store that can check it on arrival.
        """

    @abstractmethod
    def get(self, key: str, start: int, size: int) -> bytes:
        """Read a range: ``size`` bytes, or fewer only where the object ends before."""

    def read(self, key: str, start: int, size: int) -> Iterator[bytes]:
        """As `get`, in pieces as they arrive; for a client that can, since they stay in a processor's cache."""
        yield self.get(key, start, size)

    @abstractmethod
    def list(self, prefix: str) -> Iterator[Object]:
        """Every object whose key starts with ``prefix``, however many; without the parts of unfinished uploads."""

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Remove up to `batch` objects; those that do not exist are not an error."""

    @abstractmethod
    def begin(self, key: str) -> str:
        """Begin an upload in parts; returns a name for it."""

    @abstractmethod
    def put_part(self, key: str, upload: str, number: int, data: bytes, crc32c: int) -> str:
        """Store part ``number``, counted from 0; again for the same number replaces it. Returns what `complete` wants.

        All parts but the last have the same size.
        """

    @abstractmethod
    def complete(self, key: str, upload: str, parts: Sequence[str], crc32c: int) -> None:
        """Make the object of its parts; it appears whole or not at all.

        Called again after a `Transient`, it succeeds if the first call did after all.

        Args:
            parts: what `put_part` returned, in order.
            crc32c: of the whole object, for a store that can check it.
        """

    @abstractmethod
    def abort(self, key: str, upload: str) -> None:
        """Forget an upload and its parts; not an error if it is not there."""

    @abstractmethod
    def unfinished(self, prefix: str) -> Iterator[Unfinished]:
        """Uploads of keys that start with ``prefix``, begun by anybody."""
