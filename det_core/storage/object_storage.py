"""Checkpoint storage on any object store that implements `interfaces.object_store.ObjectStore`."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import google_crc32c

from det_core.errors import StorageError
from det_core.interfaces.object_store import ObjectStore
from det_core.interfaces.storage import Progress, Selector, StorageManager
from det_core.local_files.checksum import EMPTY_ENTRY, Entry, combine_entries, write_at
from det_core.local_files.file_by_file import SourceFile
from det_core.owner_process import OwnerProcess
from det_core.storage._manifest import METADATA_FILE
from det_core.storage._transfer import (
    DEFAULT_RETRY_POLICY,
    INTERACTIVE_RETRY_POLICY,
    INTERACTIVE_TIMEOUT,
    Retrier,
    RetryPolicy,
    Step,
    run_transfers,
)
from det_core.storage.config import normalize_prefix

_ROUND: Final = 1 << 20
_log = logging.getLogger("det.storage")


class ObjectStorage(StorageManager):
    """Store whose files are objects with the key ``prefix/storage_id/path``. Paths of empty directories end in ``/``.

    Args:
        bucket: the client of the bucket.
        prefix: prefix of all keys, possibly empty, which is normalized as in `normalize_prefix`.
        retry_policy: retry policy of each request.
    """

    def __init__(self, bucket: ObjectStore, prefix: str = "", retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY) -> None:
        self._client, self._retry_policy = bucket, retry_policy
        self._owner = OwnerProcess(f"the client of {bucket.url or 'the checkpoint storage'}")
        prefix = normalize_prefix(prefix)
        self._prefix = prefix + "/" if prefix else ""
        self.transfers = bucket.connections

    def with_few_retries(self) -> ObjectStorage:
        bucket = self._bucket.with_timeout(INTERACTIVE_TIMEOUT)
        return ObjectStorage(bucket, self._prefix, INTERACTIVE_RETRY_POLICY)

    def location(self, storage_id: str) -> str:
        return f"{self._client.url}/{self._prefix}{storage_id}" if self._client.url else ""

    def put(self, storage_id: str, path: str, source: Path) -> str:
        """Store a file as in `StorageManager.put`. If it grows during the upload, only its old content is stored."""
        upload = _Upload(self._bucket, self._key(storage_id, path), source, grows=True)
        return run_transfers({path: upload}, threads=self.transfers, retry_policy=self._retry_policy)[path].crc32c

    def get(self, storage_id: str, path: str, target: Path) -> str:
        size = self._bucket.part_size  # nearly always sufficient, so that one request is enough
        entry = self.get_files(storage_id, {path: (target, size)})[path]
        if entry.size <= size:
            return entry.crc32c
        ((_, size),) = self._sizes(storage_id, path)
        return self.get_files(storage_id, {path: (target, size)})[path].crc32c

    def put_files(self, storage_id: str, files: Mapping[str, Path]) -> dict[str, Entry]:
        moves = {path: _Upload(self._bucket, self._key(storage_id, path), file) for path, file in files.items()}
        return run_transfers(moves, threads=self.transfers, retry_policy=self._retry_policy)

    def get_files(
        self, storage_id: str, files: Mapping[str, tuple[Path, int]], progress: Progress | None = None
    ) -> dict[str, Entry]:
        """Download files in concurrent ranges as in `StorageManager.get_files`.

        Of an object that is larger than expected, one byte more is read, so that its entry differs.
        """
        moves = {
            path: _Download(self._bucket, self._key(storage_id, path), path, target, size)
            for path, (target, size) in files.items()
        }
        return run_transfers(moves, threads=self.transfers, progress=progress, retry_policy=self._retry_policy)

    def list(self, storage_id: str) -> dict[str, int]:
        return dict(self._sizes(storage_id))

    def delete(self, storage_id: str, paths: Sequence[str]) -> None:
        first = [path for path in paths if path == METADATA_FILE]  # separately, because one request has no order
        rest = [path for path in paths if path != METADATA_FILE]
        attempts = Retrier(self._retry_policy)
        for batch in (first, *_batches(rest, self._bucket.batch)):
            if batch:
                keys = [self._key(storage_id, path) for path in batch]
                attempts(functools.partial(self._bucket.delete, keys))
        self.abort_uploads(storage_id, set(paths).__contains__)

    def abort_uploads(self, storage_id: str, selected: Selector) -> None:
        attempts, start = Retrier(self._retry_policy), self._key(storage_id, "")
        for left in attempts(lambda: list(self._bucket.unfinished(start))):
            if selected(left.key.removeprefix(start)):
                attempts(functools.partial(self._bucket.abort, left.key, left.upload))

    def stored(self) -> dict[str, datetime]:
        attempts = Retrier(self._retry_policy)
        found: dict[str, datetime] = {}
        objects = attempts(lambda: [(each.key, each.time) for each in self._bucket.list(self._prefix)])
        uploads = attempts(lambda: [(each.key, each.time) for each in self._bucket.unfinished(self._prefix)])
        for key, time in objects + uploads:
            storage_id, slash, _ = key.removeprefix(self._prefix).partition("/")
            if slash:
                found[storage_id] = max(time, found.get(storage_id, time))
        return found

    @property
    def _bucket(self) -> ObjectStore:
        """Client of the bucket, whose connections a forked child must not use."""
        self._owner.require()
        return self._client

    def _key(self, storage_id: str, path: str) -> str:
        return f"{self._prefix}{storage_id}/{path}"

    def _sizes(self, storage_id: str, path: str = "") -> Iterable[tuple[str, int]]:
        """Return path and size of all files, or of the one path, which must exist."""
        key = self._key(storage_id, path)
        objects = Retrier(self._retry_policy)(lambda: list(self._bucket.list(key)))
        found = [(each.key.removeprefix(self._key(storage_id, "")), each.size) for each in objects]
        if not path:
            return [(name, size) for name, size in found if name]
        found = [(name, size) for name, size in found if name == path]
        if not found:
            raise FileNotFoundError(path)
        return found


class _Upload:
    """Upload of a file in one request or, if it is large, in parts. The step of the last part creates the object."""

    def __init__(self, bucket: ObjectStore, key: str, path: Path, *, grows: bool = False) -> None:
        self._bucket, self._key = bucket, key
        self._source = None if key.endswith("/") else SourceFile(path, grows=grows)
        self._size = self._source.size if self._source else 0
        needed = -(-self._size // bucket.most_parts)
        self._part = bucket.part_size if needed <= bucket.part_size else -(-needed // _ROUND) * _ROUND
        self.memory = max(1, min(self._size, self._part))
        self._count = -(-self._size // self._part)
        self._lock = threading.Lock()
        self._upload: str | None = None
        self._begun_times = 0
        self._parts: dict[int, tuple[str, Entry]] = {}
        self._entry = EMPTY_ENTRY

    def steps(self) -> Sequence[Step]:
        if self._size <= self._part:
            return [self._put]
        return [functools.partial(self._put_part, number) for number in range(self._count)]

    def finish(self) -> Entry:
        return self._entry

    def abandon(self) -> None:
        if self._upload is not None:
            try:
                Retrier(INTERACTIVE_RETRY_POLICY)(lambda: self._bucket.abort(self._key, self._upload or ""))
            except StorageError as error:
                _log.warning(
                    "could not abort the multipart upload of %s; its parts remain until a rule of the bucket removes "
                    "them: %s",
                    self._key,
                    error,
                )

    def _put(self, attempts: Retrier) -> int:
        data = self._source.read(0, self._size) if self._source else b""
        crc = google_crc32c.value(data)
        attempts(lambda: self._bucket.put(self._key, data, crc))
        self._end(Entry(len(data), f"{crc:08x}"))
        return len(data)

    def _put_part(self, number: int, attempts: Retrier) -> int:
        assert self._source
        start = number * self._part
        data = self._source.read(start, min(self._part, self._size - start))
        crc = google_crc32c.value(data)
        upload = self._begun(attempts)
        tag = attempts(lambda: self._bucket.put_part(self._key, upload, number, data, crc))
        with self._lock:
            self._parts[number] = tag, Entry(len(data), f"{crc:08x}")
            is_last = len(self._parts) == self._count
        if is_last:
            self._complete(upload, attempts)
        return len(data)

    def _begun(self, attempts: Retrier) -> str:
        with self._lock:
            if self._upload is None:
                self._upload = attempts(self._begin)
            return self._upload

    def _begin(self) -> str:
        self._begun_times += 1
        return self._bucket.begin(self._key)

    def _complete(self, upload: str, attempts: Retrier) -> None:
        tags, entries = zip(*(self._parts[number] for number in sorted(self._parts)), strict=True)
        whole = combine_entries(entries)
        assert self._source
        self._source.check()  # before the object appears
        if self._begun_times > 1:  # the response to an earlier request may have been lost
            for left in attempts(lambda: list(self._bucket.unfinished(self._key))):
                if left.key == self._key and left.upload != upload:
                    attempts(functools.partial(self._bucket.abort, left.key, left.upload))
        attempts(lambda: self._bucket.complete(self._key, upload, tags, int(whole.crc32c, 16)))
        self._upload = None
        self._end(whole)

    def _end(self, entry: Entry) -> None:
        if self._source:
            self._source.check()
        self._entry = entry


class _Download:
    """Download of a file in concurrent ranges."""

    def __init__(self, bucket: ObjectStore, key: str, name: str, target: Path, size: int) -> None:
        self._bucket, self._key, self._name, self._target, self._size = bucket, key, name, target, size
        self.memory = max(1, min(size, bucket.part_size))
        self._parts: dict[int, Entry] = {}
        self._has_written = False

    def steps(self) -> Sequence[Step]:
        starts = range(0, max(1, self._size), self._bucket.part_size)
        return [functools.partial(self._get, start) for start in starts]

    def finish(self) -> Entry:
        whole = combine_entries([self._parts[start] for start in sorted(self._parts)])
        os.truncate(self._target, whole.size)  # because an earlier attempt may have written more
        return whole

    def abandon(self) -> None:
        if self._has_written:
            self._target.unlink(missing_ok=True)

    def _get(self, start: int, attempts: Retrier) -> int:
        size = min(self._bucket.part_size, self._size - start)
        more = start + size >= self._size  # one extra byte reveals an object that is too long
        try:
            self._parts[start] = attempts(lambda: self._read(start, size + more))
        except FileNotFoundError as error:
            raise FileNotFoundError(self._name) from error
        return self._parts[start].size

    def _read(self, start: int, size: int) -> Entry:
        pieces = self._bucket.read(self._key, start, size)
        first = next(pieces, b"")  # before the file is created, because the object may not exist
        self._has_written = True
        descriptor = os.open(self._target, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            position, crc = start, 0
            for piece in itertools.chain((first,), pieces):
                write_at(descriptor, piece, position)
                position, crc = position + len(piece), google_crc32c.extend(crc, piece)
        finally:
            os.close(descriptor)
        return Entry(position - start, f"{crc:08x}")


def _batches(paths: Sequence[str], size: int) -> Iterator[list[str]]:
    remaining = iter(paths)
    while batch := list(itertools.islice(remaining, size)):
        yield batch
