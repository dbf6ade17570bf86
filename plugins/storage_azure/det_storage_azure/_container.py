"""Client of a container of Azure Blob Storage. Importing this module imports Azure's client."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timezone
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob import BlobBlock, BlobClient, ContainerClient

from det_core.errors import StorageError
from det_core.interfaces.object_store import ListedObject, ObjectStore, TransientError, UnfinishedUpload
from det_core.storage import ObjectStorage
from det_storage_azure._config import AzureConfig
from det_storage_azure._errors import translate_errors

_CONNECT: Final = 10.0
"""Maximum number of seconds for a connection to the service."""
_NO_RANGE: Final = "InvalidRange"
"""Code of the error about a read that begins at or after the end of a blob."""


def open_azure_storage(config: AzureConfig) -> ObjectStorage:
    """Return the checkpoint storage of a config block. Its blobs are named ``prefix/uuid/path``."""
    return ObjectStorage(AzureContainer(config), config.prefix)


class AzureContainer(ObjectStore):
    """Client of one container. Large blobs are lists of blocks, which the service joins in one step.

    The service verifies the MD5 of received data.

    Args:
        config: the config block.

    Raises:
        StorageError: the credential is malformed.
    """

    connections = 10
    batch = 256  # limit of the service
    most_parts = 50_000  # limit of the service

    def __init__(self, config: AzureConfig) -> None:
        self._config = config
        self._name = config.container
        options: dict[str, Any] = {
            "retry_total": 0,  # det repeats requests
            "connection_timeout": min(config.timeout, _CONNECT),
            "read_timeout": config.timeout,
        }
        try:
            if config.connection_string:
                text = config.connection_string.get_secret_value()
                self._client = ContainerClient.from_connection_string(text, config.container, **options)
            else:
                credential = config.credential.get_secret_value() if config.credential else None
                self._client = ContainerClient(config.account_url or "", config.container, credential, **options)
        except ValueError:  # whose text might contain the secret
            raise StorageError(
                "checkpoint_storage: the connection_string or credential is malformed; copy it whole"
            ) from None
        self.url = re.sub(r"(?<=//).*@|[?#].*", "", self._client.primary_endpoint)  # without a password and SAS token

    def with_timeout(self, seconds: float) -> AzureContainer:
        return AzureContainer(self._config.model_copy(update={"timeout": min(self._config.timeout, seconds)}))

    def put(self, key: str, data: bytes, crc32c: int) -> None:
        with self._translate_errors():
            self._blob(key).upload_blob(data, overwrite=True, validate_content=True, max_concurrency=1)

    def get(self, key: str, start: int, size: int) -> bytes:
        with self._translate_errors(key):
            try:
                stream = self._blob(key).download_blob(offset=start, length=size, max_concurrency=1)
                return bytes(stream.readall())
            except HttpResponseError as error:
                if getattr(error, "error_code", None) == _NO_RANGE:
                    return b""
                raise

    def list(self, prefix: str) -> Iterator[ListedObject]:
        with self._translate_errors():
            for blob in self._client.list_blobs(name_starts_with=_to_name(prefix)):
                yield ListedObject(_to_key(blob.name), blob.size, blob.last_modified)

    def delete(self, keys: Sequence[str]) -> None:
        with self._translate_errors():
            for answer in self._client.delete_blobs(*map(_to_name, keys), raise_on_any_failure=False):
                if answer.status_code >= 300 and answer.status_code != 404:
                    text = f"{self.url}: cannot delete a blob (HTTP status {answer.status_code})"
                    raise TransientError(text) if answer.status_code >= 429 else StorageError(text)

    def begin(self, key: str) -> str:
        return uuid.uuid4().hex

    def put_part(self, key: str, upload: str, number: int, data: bytes, crc32c: int) -> str:
        block = base64.b64encode(f"{upload}{number:05d}".encode()).decode()  # all of a blob have the same length
        with self._translate_errors():
            self._blob(key).stage_block(block, data, validate_content=True)
        return block

    def complete(self, key: str, upload: str, parts: Sequence[str], crc32c: int) -> None:
        with self._translate_errors():
            self._blob(key).commit_block_list([BlobBlock(block) for block in parts])

    def abort(self, key: str, upload: str) -> None:
        """Discard the blocks of a blob that does not exist yet. Those beside an existing one expire after a week.

        The service has no request for it. An empty blob replaces the blocks for a moment, which hurts nobody, because
        no checkpoint exists without ``metadata.json``.
        """
        blob = self._blob(key)
        with self._translate_errors(), suppress(ResourceExistsError, ResourceModifiedError, ResourceNotFoundError):
            _, blocks = blob.get_block_list("uncommitted")
            if blocks:
                stored = blob.commit_block_list([], match_condition=MatchConditions.IfMissing)
                blob.delete_blob(etag=str(stored["etag"]), match_condition=MatchConditions.IfNotModified)

    def unfinished(self, prefix: str) -> Iterator[UnfinishedUpload]:
        with self._translate_errors():
            blobs = list(self._client.list_blobs(name_starts_with=_to_name(prefix), include=["uncommittedblobs"]))
        stored = {each.key for each in self.list(prefix)} if blobs else set()
        for blob in blobs:
            if (key := _to_key(blob.name)) not in stored:
                yield UnfinishedUpload(key, "", blob.last_modified or datetime.now(timezone.utc))

    def _blob(self, key: str) -> BlobClient:
        return self._client.get_blob_client(_to_name(key))

    def _translate_errors(self, key: str | None = None) -> AbstractContextManager[None]:
        return translate_errors(self.url, self._name, key)


def _to_name(key: str) -> str:
    """Return the name of a blob. The service takes backslashes for slashes, so they become ``%5C``."""
    return re.sub(r"\\|%(?=(?:25)*5C)", lambda match: "%5C" if match[0] == "\\" else "%25", key)


def _to_key(name: str) -> str:
    """Return the key of a blob, as `_to_name` has changed it."""
    return re.sub(r"%5C|%25(?=(?:25)*5C)", lambda match: "\\" if match[0] == "%5C" else "%", name)
