"""Interface of an object store's client: one request per method, on objects named by keys.

det takes care of the rest: concurrent requests, multipart transfers, retries, checksums and deadlines.
`det_core.storage.ObjectStorage` turns a client into an `interfaces.storage.StorageManager`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime


class TransientError(Exception):
    """A failure that may be temporary, such as a timeout, a broken connection, 5xx or 429. det retries the request.

    Args:
        text: error message for the user in case the retries fail, without secrets.
        after: number of seconds that the server asks to wait, or None if it does not say.
    """

    def __init__(self, text: str, after: float | None = None) -> None:
        super().__init__(text)
        self.after = after


@dataclass(frozen=True)
class ListedObject:
    """One entry of a listing.

    Attributes:
        key: key of the object.
        size: size in bytes.
        time: time of the last write, timezone-aware.
    """

    key: str
    size: int
    time: datetime


@dataclass(frozen=True)
class UnfinishedUpload:
    """A multipart upload that was begun but neither completed nor aborted.

    Attributes:
        key: key of the object to be created.
        upload: upload id from `ObjectStore.begin`.
        time: time of the beginning or of the latest part, timezone-aware.
    """

    key: str
    upload: str
    time: datetime


class ObjectStore(ABC):
    """Client of one bucket. Methods are called from several threads at once and do not retry.

    Each method returns or raises within about a minute, whatever the server does.

    Raises:
        TransientError: the failure may be temporary.
        FileNotFoundError: the object does not exist.
        det_core.errors.StorageError: the user can fix the failure: wrong credentials, no such bucket, permission
            denied, wrong region. The message contains no secrets.
    """

    connections: int = 16
    """Number of concurrent requests."""
    part_size: int = 8 << 20
    """Size in bytes of the parts in which larger files are transferred. Larger if `most_parts` would not suffice."""
    most_parts: int = 10_000
    """Maximum number of parts in one upload."""
    batch: int = 1000
    """Maximum number of keys in one `delete` request."""
    url: str = ""
    """URL of the bucket, such as ``s3://bucket``, or an empty string if its objects have no URLs."""

    def with_timeout(self, seconds: float) -> ObjectStore:
        """Return a client of the same bucket that waits for at most ``seconds`` seconds for each answer.

        It need not differ from this one if that waits for about a minute.
        """
        return self

    @abstractmethod
    def put(self, key: str, data: bytes, crc32c: int) -> None:
        """Store an object, replacing any earlier object. It appears whole or not at all.

        Args:
            key: key of the object. It ends in ``/`` for an empty directory.
            data: at most `part_size` bytes. Empty for an empty directory.
            crc32c: checksum of the data, for a store that can verify it.
        """

    @abstractmethod
    def get(self, key: str, start: int, size: int) -> bytes:
        """Read ``size`` bytes from offset ``start``, or fewer only where the object ends.

        Args:
            key: key of the object.
            start: offset of the first byte.
            size: number of bytes.
        """

    def read(self, key: str, start: int, size: int) -> Iterator[bytes]:
        """Read a range as in `get`, but yield pieces as they arrive.

        Clients that can do so should override it, because small pieces stay in the processor's cache.

        Args:
            key: key of the object.
            start: offset of the first byte.
            size: number of bytes.
        """
        yield self.get(key, start, size)

    @abstractmethod
    def list(self, prefix: str) -> Iterator[ListedObject]:
        """Yield every object whose key starts with ``prefix``, without the parts of unfinished uploads."""

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Delete up to `batch` objects. Objects that do not exist are ignored."""

    @abstractmethod
    def begin(self, key: str) -> str:
        """Begin a multipart upload and return its upload id."""

    @abstractmethod
    def put_part(self, key: str, upload: str, number: int, data: bytes, crc32c: int) -> str:
        """Store one part of a multipart upload, replacing any earlier part with the same number.

        All parts but the last have the same size.

        Args:
            key: key of the object to be created.
            upload: upload id from `begin`.
            number: number of the part, from 0.
            data: contents of the part.
            crc32c: checksum of the part, for a store that can verify it.

        Returns:
            The token of the part that `complete` expects.
        """

    @abstractmethod
    def complete(self, key: str, upload: str, parts: Sequence[str], crc32c: int) -> None:
        """Create the object from its parts. It appears whole or not at all.

        If the first call succeeded in spite of a `TransientError`, a repeated call succeeds, too.

        Args:
            key: key of the object.
            upload: upload id from `begin`.
            parts: tokens that `put_part` returned, in order.
            crc32c: checksum of the whole object, for a store that can verify it.
        """

    @abstractmethod
    def abort(self, key: str, upload: str) -> None:
        """Discard a multipart upload and its parts. An unknown upload is ignored.

        Args:
            key: key of the object that was to be created.
            upload: upload id from `begin`.
        """

    @abstractmethod
    def unfinished(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Yield all unfinished uploads of keys that start with ``prefix``, whoever began them."""
