"""Client of a Google Cloud Storage bucket, which composes large objects from smaller ones."""

from __future__ import annotations

import base64
import copy
import itertools
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from typing import Any, Final
from urllib.parse import quote, unquote

from google.api_core.exceptions import (
    NotFound,
    PreconditionFailed,
    RequestRangeNotSatisfiable,
    from_http_response,
)
from google.cloud import storage

from det_core.errors import StorageError
from det_core.interfaces.object_store import ListedObject, ObjectStore, TransientError, UnfinishedUpload
from det_core.storage import ObjectStorage
from det_storage_gcs._config import GCSConfig
from det_storage_gcs._errors import translate_errors

_UPLOADS: Final = ".det-uploads/"
"""Name prefix of parts, below the prefix of the config. Names of parts continue with UPLOAD/PART."""
_KEY: Final = "det-key"  # metadata of a part, the percent-encoded key of the final object
_UPLOAD: Final = "det-upload"  # metadata of an object, the upload that created it
_TYPE: Final = "application/octet-stream"
_COMPOSE: Final = 32  # maximum number of objects that the service composes in one request
_CONNECT: Final = 10.0


def open_gcs_storage(config: GCSConfig) -> ObjectStorage:
    """Return the checkpoint storage of a config block."""
    return ObjectStorage(GCSBucket(config), config.prefix)


class GCSBucket(ObjectStore):
    """Client of one bucket, which stores the parts of an upload as separate objects and composes them.

    Each part is written once under a unique name, so that late or repeated requests do no harm. The service's own
    multipart uploads exist in its XML API only, whereas composing works wherever the JSON API does.

    Args:
        config: the config block.
    """

    batch = 100  # limit of the service

    def __init__(self, config: GCSConfig) -> None:
        self._name = config.bucket
        self.url = f"gs://{config.bucket}"
        self._uploads = f"{config.prefix}/{_UPLOADS}" if config.prefix else _UPLOADS
        self._timeout = config.timeout
        self._joined: dict[str, dict[tuple[str, ...], Any]] = {}  # by upload, for a repeated `complete`
        self._endpoint = "storage.googleapis.com"
        with self._translate_errors():
            self._client = _create_client(self.connections)
        self._endpoint = self._client.api_endpoint
        self._bucket = self._client.bucket(config.bucket)

    def with_timeout(self, seconds: float) -> GCSBucket:
        other = copy.copy(self)  # with the same credentials
        other._timeout = min(self._timeout, seconds)
        return other

    def put(self, key: str, data: bytes, crc32c: int) -> None:
        with self._translate_errors():
            self._write(self._bucket.blob(key), data, crc32c)

    def get(self, key: str, start: int, size: int) -> bytes:
        blob = self._bucket.blob(key)
        with self._translate_errors(key):
            try:
                data: bytes = blob.download_as_bytes(
                    start=start, end=start + size - 1, raw_download=True, checksum=None, **self._options
                )
            except RequestRangeNotSatisfiable:
                return b""
        return data

    def list(self, prefix: str) -> Iterator[ListedObject]:
        for blob in self._list(prefix, "name,size,timeCreated"):
            if not blob.name.startswith(self._uploads):
                yield ListedObject(blob.name, blob.size, blob.time_created)

    def delete(self, keys: Sequence[str]) -> None:
        with self._translate_errors():
            with self._client.batch(raise_exception=False) as batch:
                for key in keys:
                    self._bucket.delete_blob(key, **self._options)
            for answer in batch._responses:
                if not answer.ok and answer.status_code != NotFound.code:
                    raise from_http_response(answer)  # type: ignore[no-untyped-call]

    def begin(self, key: str) -> str:
        return uuid.uuid4().hex

    def put_part(self, key: str, upload: str, number: int, data: bytes, crc32c: int) -> str:
        blob = self._part(key, upload, f"{number:05d}")
        # The name is unique. If it is taken, the request was sent twice somewhere between this host and the server.
        with self._translate_errors(), suppress(PreconditionFailed):
            self._write(blob, data, crc32c, if_generation_match=0)
        return str(blob.name)

    def complete(self, key: str, upload: str, parts: Sequence[str], crc32c: int) -> None:
        with self._translate_errors():
            before = self._bucket.get_blob(key, **self._options)
        if before is None or (before.metadata or {}).get(_UPLOAD) != upload:
            self._publish(key, upload, self._whole(key, upload, parts, crc32c), before.generation if before else 0)
        self.abort(key, upload)

    def abort(self, key: str, upload: str) -> None:
        self._joined.pop(upload, None)
        names = (blob.name for blob in self._list(f"{self._uploads}{upload}/", "name"))
        while batch := list(itertools.islice(names, self.batch)):
            self.delete(batch)

    def unfinished(self, prefix: str) -> Iterator[UnfinishedUpload]:
        found: dict[str, UnfinishedUpload] = {}
        for blob in self._list(self._uploads, "name,timeCreated,metadata"):
            upload = blob.name.removeprefix(self._uploads).partition("/")[0]
            key = unquote((blob.metadata or {}).get(_KEY, ""))
            latest = max(blob.time_created, found[upload].time if upload in found else blob.time_created)
            found[upload] = UnfinishedUpload(key, upload, latest)
        yield from (each for each in found.values() if each.key.startswith(prefix))

    def _translate_errors(self, key: str | None = None) -> AbstractContextManager[None]:
        return translate_errors(self._name, self._endpoint, key)

    def _list(self, prefix: str, fields: str) -> Iterator[Any]:
        with self._translate_errors():
            yield from self._client.list_blobs(
                self._bucket, prefix=prefix, fields=f"items({fields}),nextPageToken", **self._options
            )

    def _write(self, blob: Any, data: bytes, crc32c: int, **conditions: int) -> None:
        blob.crc32c = _encoded(crc32c)  # the server verifies the data with it
        blob.upload_from_string(data, content_type=_TYPE, checksum=None, **conditions, **self._options)
        if blob.crc32c != _encoded(crc32c):  # the checksum of the stored data, from the response
            raise TransientError(f"gs://{self._name}: {blob.name} was corrupted in transit")

    @property
    def _options(self) -> dict[str, Any]:
        return {"timeout": (min(self._timeout, _CONNECT), self._timeout), "retry": None}

    def _part(self, key: str, upload: str, label: str) -> Any:
        blob = self._bucket.blob(f"{self._uploads}{upload}/{label}-{uuid.uuid4().hex[:12]}")
        blob.metadata = {_KEY: quote(key)}
        return blob

    def _whole(self, key: str, upload: str, parts: Sequence[str], crc32c: int) -> Any:
        """Compose all parts into one object under a hidden name, verify its checksum, and return it.

        Raises:
            StorageError: the checksum differs.
        """
        joined = self._joined.setdefault(upload, {})

        def join(group: Sequence[Any]) -> Any:
            names = tuple(blob.name for blob in group)
            if names not in joined:
                joined[names] = self._compose(self._part(key, upload, "joined"), group, 0)
            return joined[names]

        blobs = [self._bucket.blob(name) for name in parts]
        with ThreadPoolExecutor(self.connections) as pool:
            while True:
                groups = [blobs[start : start + _COMPOSE] for start in range(0, len(blobs), _COMPOSE)]
                blobs = list(pool.map(join, groups))
                if len(blobs) == 1:
                    break
        if blobs[0].crc32c != _encoded(crc32c):
            raise StorageError(
                f"gs://{self._name}: parts of {key} do not match the checksum of the whole; store the checkpoint again"
            )
        return blobs[0]

    def _publish(self, key: str, upload: str, whole: Any, generation: int) -> None:
        """Copy the hidden object to its final name, provided that the object there still has the given generation.

        Args:
            key: the final name.
            upload: the upload that created the object.
            whole: the hidden object.
            generation: expected generation of the object to replace, or 0 if there is none.
        """
        blob = self._bucket.blob(key)
        blob.metadata = {_UPLOAD: upload}
        self._compose(blob, [whole], generation)

    def _compose(self, blob: Any, sources: Sequence[Any], generation: int) -> Any:
        blob.content_type = _TYPE
        with self._translate_errors():
            try:
                blob.compose(sources, if_generation_match=generation, **self._options)
            except NotFound as error:
                raise StorageError(
                    f"gs://{self._name}: parts of an upload vanished from {self._uploads} before it was complete; "
                    "store the checkpoint again, and exempt that prefix from the bucket's lifecycle rules"
                ) from error
        return blob


def _encoded(crc32c: int) -> str:
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def _create_client(connections: int) -> storage.Client:
    """Return a client with the application's default credentials, or without credentials for an emulator.

    Args:
        connections: maximum number of connections that are kept open.
    """
    client = storage.Client(project=None)  # only the creation of buckets needs a project
    for adapter in client._http.adapters.values():  # the default of requests is 10 connections
        adapter.init_poolmanager(connections, connections)
    client._bucket_metadata_cache = None  # else a thread requests the bucket's location, only for traces
    return client
