"""Client of an S3 bucket, with one request per method. Importing this module imports botocore."""

from __future__ import annotations

import logging
import re
import threading
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from hashlib import md5
from typing import Any, Final

from botocore.exceptions import ClientError

from det_core.interfaces.object_store import ListedObject, ObjectStore, TransientError, UnfinishedUpload
from det_core.storage import ObjectStorage
from det_storage_s3._client import create_s3_client
from det_storage_s3._config import S3Config
from det_storage_s3._errors import ErrorTranslator

_NOT_IN_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Characters that XML cannot represent, so that DeleteObjects cannot name a key with them."""
_PIECE: Final = 256 << 10
"""Size in bytes of the pieces in which contents are read."""
_log = logging.getLogger("det.storage")


def open_s3_storage(config: S3Config) -> ObjectStorage:
    """Return the checkpoint storage of a config block. Its keys are ``prefix/uuid/path``."""
    return ObjectStorage(S3Bucket(config), config.prefix)


class S3Bucket(ObjectStore):
    """Client of a bucket in S3, which verifies the CRC-32C of received data (``when_supported``).

    Args:
        config: the config block.
    """

    def __init__(self, config: S3Config) -> None:
        self._config = config
        self.url = f"s3://{config.bucket}"
        self._checks = config.request_checksum_calculation == "when_supported"
        self._translate_errors = ErrorTranslator(config.bucket, config.endpoint_url or "S3")
        self._lock = threading.Lock()
        self._connected: Any = None
        self._deletes_many = True

    def with_timeout(self, seconds: float) -> S3Bucket:
        return S3Bucket(self._config.model_copy(update={"timeout": min(self._config.timeout, seconds)}))

    def put(self, key: str, data: bytes, crc32c: int) -> None:
        with self._translate_errors(key):
            _whole(self._client.put_object(**self._at(key), Body=data, **self._sum(crc32c)), "ETag")

    def get(self, key: str, start: int, size: int) -> bytes:
        return b"".join(self.read(key, start, size))

    def read(self, key: str, start: int, size: int) -> Iterator[bytes]:
        with self._translate_errors(key):
            try:
                answer = self._client.get_object(**self._at(key), Range=f"bytes={start}-{start + size - 1}")
            except ClientError as error:
                if _code(error) == "InvalidRange":
                    return
                raise
            with closing(answer["Body"]) as body:
                if not answer.get("ContentRange", "").startswith(f"bytes {start}-"):
                    raise TransientError(
                        f"requested bytes from {start} on, got {answer.get('ContentRange', 'everything')}"
                    )
                while piece := body.read(_PIECE):
                    yield piece

    def list(self, prefix: str) -> Iterator[ListedObject]:
        with self._translate_errors(prefix):
            for page in self._pages("list_objects_v2", Prefix=prefix):
                for entry in page.get("Contents", ()):
                    yield ListedObject(entry["Key"], entry["Size"], entry["LastModified"])

    def delete(self, keys: Sequence[str]) -> None:
        with self._translate_errors():
            alone = [key for key in keys if not self._deletes_many or _NOT_IN_XML.search(key)]
            together = sorted(set(keys).difference(alone))
            left = self._delete_together(together) if together else ()
            for key in (*alone, *left):
                self._client.delete_object(**self._at(key))

    def begin(self, key: str) -> str:
        kind = {"ChecksumAlgorithm": "CRC32C", "ChecksumType": "FULL_OBJECT"} if self._checks else {}
        with self._translate_errors(key):
            answer = self._client.create_multipart_upload(**self._at(key), **kind)
            return str(_whole(answer, "UploadId")["UploadId"])

    def put_part(self, key: str, upload: str, number: int, data: bytes, crc32c: int) -> str:
        place = {**self._at(key), "UploadId": upload, "PartNumber": number + 1}
        with self._translate_errors(key):
            answer = self._client.upload_part(**place, Body=data, **self._sum(crc32c))
            return f"{_whole(answer, 'ETag')['ETag']} {_text(crc32c)}"

    def complete(self, key: str, upload: str, parts: Sequence[str], crc32c: int) -> None:
        listed = [self._part(number, part) for number, part in enumerate(parts, start=1)]
        kind = {"ChecksumType": "FULL_OBJECT", **self._sum(crc32c)} if self._checks else {}
        with self._translate_errors(key):
            try:
                answer = self._client.complete_multipart_upload(
                    **self._at(key), UploadId=upload, MultipartUpload={"Parts": listed}, **kind
                )
                _whole(answer, "ETag")
            except ClientError as error:
                if _code(error) != "NoSuchUpload" or not self._is_there(key, parts, crc32c):
                    raise

    def abort(self, key: str, upload: str) -> None:
        with self._translate_errors(key):
            try:
                self._client.abort_multipart_upload(**self._at(key), UploadId=upload)
            except ClientError as error:
                if _code(error) != "NoSuchUpload":
                    raise

    def unfinished(self, prefix: str) -> Iterator[UnfinishedUpload]:
        with self._translate_errors(prefix):
            for page in self._pages("list_multipart_uploads", Prefix=prefix):
                for entry in page.get("Uploads", ()):
                    key, upload = entry["Key"], entry["UploadId"]
                    yield UnfinishedUpload(key, upload, max([entry["Initiated"], *self._times_of_parts(key, upload)]))

    @property
    def _client(self) -> Any:
        if self._connected is None:
            with self._lock:
                if self._connected is None:
                    self._connected = create_s3_client(self._config, self.connections)
        return self._connected

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._config.bucket, "Key": key}

    def _sum(self, crc32c: int) -> dict[str, str]:
        return {"ChecksumCRC32C": _text(crc32c)} if self._checks else {}

    def _part(self, number: int, part: str) -> dict[str, Any]:
        tag, crc = part.rsplit(" ", 1)
        return {"PartNumber": number, "ETag": tag, **({"ChecksumCRC32C": crc} if self._checks else {})}

    def _pages(self, operation: str, **arguments: str) -> Iterator[dict[str, Any]]:
        for page in self._client.get_paginator(operation).paginate(Bucket=self._config.bucket, **arguments):
            yield _whole(page, "IsTruncated")

    def _delete_together(self, keys: Sequence[str]) -> Sequence[str]:
        """Delete several objects in one request.

        Returns:
            The keys that were not deleted, which are all keys if the store does not support DeleteObjects.
        """
        try:
            wanted = {"Objects": [{"Key": key} for key in keys]}
            answer = self._client.delete_objects(Bucket=self._config.bucket, Delete=wanted)
        except ClientError as error:
            if _code(error) != "NotImplemented":
                raise
            _log.warning(
                "bucket %s does not support DeleteObjects; objects are deleted one at a time, which is slow",
                self._config.bucket,
            )
            self._deletes_many = False
            return keys
        errors = [error for error in answer.get("Errors", ()) if error.get("Code") != "NoSuchKey"]
        if errors:
            raise ClientError({"Error": errors[0]}, "DeleteObjects")
        if len(answer.get("Deleted", ())) + len(answer.get("Errors", ())) < len(keys):
            raise TransientError("the response to DeleteObjects was cut off")
        return ()

    def _is_there(self, key: str, parts: Sequence[str], crc32c: int) -> bool:
        """Return whether the object consists of these parts, according to the CRC-32C or the ETag that S3 reports."""
        try:
            found = self._client.head_object(**self._at(key), ChecksumMode="ENABLED")
        except ClientError as error:
            if _code(error) == "404":
                return False
            raise
        return bool(_text(crc32c) == found.get("ChecksumCRC32C") or _tag(parts) == found["ETag"].strip('"'))

    def _times_of_parts(self, key: str, upload: str) -> Iterator[datetime]:
        pages = self._client.get_paginator("list_parts").paginate(**self._at(key), UploadId=upload)
        try:
            for page in pages:
                yield from (part["LastModified"] for part in page.get("Parts", ()))
        except ClientError as error:
            if _code(error) != "NoSuchUpload":  # the upload has been completed or aborted
                raise


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code"))


def _text(crc32c: int) -> str:
    """Return a checksum in the notation of S3, which is base64 of the big-endian bytes."""
    return b64encode(crc32c.to_bytes(4, "big")).decode()


def _tag(parts: Sequence[str]) -> str | None:
    """Return the ETag of an object that consists of these parts, or None if the store's ETags are not MD5 sums.

    It is the MD5 sum of the concatenated MD5 sums of the parts, followed by the number of parts.
    """
    try:
        tags = [bytes.fromhex(part.rsplit(" ", 1)[0].strip('"')) for part in parts]
    except ValueError:
        return None
    return f"{md5(b''.join(tags), usedforsecurity=False).hexdigest()}-{len(parts)}"


def _whole(answer: dict[str, Any], field: str) -> dict[str, Any]:
    """Return the response if it contains the field. botocore accepts an empty response as valid.

    Raises:
        TransientError: the field is missing.
    """
    if field not in answer:
        raise TransientError(f"the response was cut off: {field} is missing")
    return answer
