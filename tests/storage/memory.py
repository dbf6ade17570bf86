"""Object store in memory, which checks its arguments as strictly as a real one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from typing import TypeVar

import google_crc32c

from det_core.errors import StorageError
from det_core.interfaces.object_store import ListedObject, ObjectStore, UnfinishedUpload

T = TypeVar("T")


class MemoryBucket(ObjectStore):
    """Bucket that keeps objects and uploads in dicts.

    Attributes:
        before: called before each request with the method's name and the key. It may raise an error.
        after: called after each request took effect. It may raise an error, as if the response had been lost.
        most_at_once: highest number of concurrent requests so far.
    """

    part_size = 16
    batch = 3

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.uploads: dict[str, tuple[str, dict[int, bytes], datetime]] = {}
        self.before: Callable[[str, str], object] = lambda method, key: None
        self.after: Callable[[str, str], object] = lambda method, key: None
        self.most_at_once = 0
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._at_once = 0

    def put(self, key: str, data: bytes, crc32c: int) -> None:
        self._do("put", key, lambda: self._store(key, data, crc32c))

    def get(self, key: str, start: int, size: int) -> bytes:
        return self._do("get", key, lambda: self._data(key)[start : start + size])

    def list(self, prefix: str) -> Iterator[ListedObject]:
        objects = self._do("list", prefix, lambda: sorted(self.objects.items()))
        yield from (ListedObject(key, len(data), time) for key, (data, time) in objects if key.startswith(prefix))

    def delete(self, keys: Sequence[str]) -> None:
        assert 0 < len(keys) <= self.batch
        self._do("delete", keys[0], lambda: [self.objects.pop(key, None) for key in keys])

    def begin(self, key: str) -> str:
        upload = f"upload-{next(self._numbers)}"
        self._do("begin", key, lambda: self.uploads.setdefault(upload, (key, {}, datetime.now(timezone.utc))))
        return upload

    def put_part(self, key: str, upload: str, number: int, data: bytes, crc32c: int) -> str:
        assert google_crc32c.value(data) == crc32c
        self._do("put_part", key, lambda: self.uploads[upload][1].__setitem__(number, data))
        return f"tag-{number}"

    def complete(self, key: str, upload: str, parts: Sequence[str], crc32c: int) -> None:
        def complete() -> None:
            if upload not in self.uploads and google_crc32c.value(self._data(key)) == crc32c:
                return  # completed by an earlier request whose response was lost
            of, received, _ = self.uploads.pop(upload)
            assert (of, list(parts)) == (key, [f"tag-{number}" for number in range(len(received))])
            self._store(key, b"".join(received[number] for number in range(len(received))), crc32c)

        self._do("complete", key, complete)

    def abort(self, key: str, upload: str) -> None:
        self._do("abort", key, lambda: self.uploads.pop(upload, None))

    def unfinished(self, prefix: str) -> Iterator[UnfinishedUpload]:
        self._do("unfinished", prefix, lambda: None)
        for upload, (key, _, time) in list(self.uploads.items()):
            if key.startswith(prefix):
                yield UnfinishedUpload(key, upload, time)

    def _store(self, key: str, data: bytes, crc32c: int) -> None:
        assert google_crc32c.value(data) == crc32c
        self.objects[key] = data, datetime.now(timezone.utc)

    def _data(self, key: str) -> bytes:
        try:
            return self.objects[key][0]
        except KeyError:
            raise FileNotFoundError(key) from None

    def _do(self, method: str, key: str, work: Callable[[], T]) -> T:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            self.before(method, key)
            with self._lock:
                result = work()
            self.after(method, key)
            return result
        finally:
            with self._lock:
                self._at_once -= 1


class Full(StorageError):
    """Permanent error that tests make a bucket raise."""
