"""Manifest of a checkpoint, stored as ``metadata.json``.

It contains the user's metadata and, under ``_det``, the list of stored files with their sizes and checksums.

Format 1::

    {"steps_completed": 9, "_det": {"format": 1, "files": {"state.pth": [8192, "9ae0d1c2"], "logs/": [0, "00000000"]}}}

Sizes are in bytes. Checksums are CRC-32C (Castagnoli, RFC 3720 B.4) in hexadecimal. Directories end in ``/``. Older
releases listed only empty ones.
"""

from __future__ import annotations

import json
import re
import uuid
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from det_core.errors import CheckpointCorrupt, StorageError
from det_core.interfaces.storage import StorageManager
from det_core.local_files.checksum import Entry
from det_core.scratch import scratch_directory
from det_core.storage._open import explain_put_errors

METADATA_FILE = "metadata.json"
"""Stored path of the manifest and the user's metadata. A checkpoint is complete as long as it has this file."""
KEY = "_det"
FORMAT = 1
_CRC = re.compile("[0-9a-f]{8}")


@dataclass(frozen=True)
class Manifest:
    """Contents of ``metadata.json``.

    Attributes:
        metadata: the user's metadata.
        files: entries by stored path, or None if another system wrote the checkpoint, without checksums.
    """

    metadata: Mapping[str, Any]
    files: Mapping[str, Entry] | None

    def to_json(self) -> str:
        """Return the manifest as text in format 1."""
        files = {path: [entry.size, entry.crc32c] for path, entry in (self.files or {}).items()}
        return json.dumps({**self.metadata, KEY: {"format": FORMAT, "files": files}})

    @staticmethod
    def from_json(text: bytes, storage_id: str) -> Manifest:
        """Parse ``metadata.json``.

        Args:
            text: contents of the file.
            storage_id: id of the checkpoint, for error messages.

        Raises:
            CheckpointCorrupt: the text is not JSON of this form.
            StorageError: the format is unknown to this release.
        """
        where = f"metadata.json of checkpoint {storage_id}"
        content = _parsed(text, where)
        if KEY not in content:
            warnings.warn(f"checkpoint {storage_id} has no checksums (another system wrote it)", stacklevel=2)
            return Manifest(content, None)
        ours = content.pop(KEY)
        if not isinstance(ours, dict) or "format" not in ours:
            raise _damaged(where, f"expected an object with a format under {KEY!r}, found {ours!r:.100}")
        if ours["format"] != FORMAT:
            raise StorageError(  # not CheckpointCorrupt, because a newer release can read the checkpoint
                f"checkpoint {storage_id} has format {ours['format']!r:.100}, but this release reads format {FORMAT}; "
                "upgrade det-core"
            )
        files = ours.get("files")
        if not isinstance(files, dict):
            raise _damaged(where, f"expected an object of files, found {files!r:.100}")
        return Manifest(content, {path: _entry(path, found, where) for path, found in files.items()})


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a checkpoint.

    Raises:
        CheckpointCorrupt: the file does not contain a JSON object.
    """
    return _parsed(path.read_bytes(), str(path))


def is_manifest(path: Path) -> bool:
    """Return whether a file is the ``metadata.json`` of a checkpoint of det."""
    try:
        return KEY in read_object(path)
    except CheckpointCorrupt:
        return False


def _parsed(text: bytes, where: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(where, str(error)) from error
    if not isinstance(content, dict):
        raise _damaged(where, f"expected a JSON object, found {content!r:.100}")
    return content


def _entry(path: str, found: object, where: str) -> Entry:
    match found:
        case [int(size), str(crc)] if type(size) is int and size >= 0 and _CRC.fullmatch(crc):
            return Entry(size, crc)
    raise _damaged(where, f"expected [size, crc32c] of {path!r}, found {found!r:.100}")


def _damaged(where: str, why: str) -> CheckpointCorrupt:
    return CheckpointCorrupt(f"{where} is damaged: {why}; restore an older checkpoint")


def put_manifest(storage: StorageManager, storage_id: str, manifest: Manifest) -> int:
    """Write or replace ``metadata.json`` and return its size in bytes. The file is visible and durable on return."""
    text = manifest.to_json().encode()
    with scratch_directory("manifest") as scratch:
        path = scratch / METADATA_FILE
        path.write_bytes(text)
        with explain_put_errors(storage):
            storage.put(storage_id, METADATA_FILE, path)
    storage.sync(storage_id, [METADATA_FILE])
    return len(text)


def sign_copy(directory: Path, storage_id: str, metadata: Mapping[str, Any]) -> None:
    """Write the checkpoint's id and the user's current metadata into ``metadata.json`` of a restored copy.

    Args:
        directory: the directory of the copy.
        storage_id: id of the checkpoint.
        metadata: the user's metadata.
    """
    path = directory / METADATA_FILE
    ours = read_object(path).get(KEY) or {}
    signed = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    signed.write_text(json.dumps({**metadata, KEY: {**ours, "uuid": storage_id}}, indent=2), encoding="utf-8")
    signed.replace(path)


def copied_from(directory: Path) -> str | None:
    """Return the id of the checkpoint that `sign_copy` wrote into a directory, or None if there is none."""
    try:
        ours = read_object(directory / METADATA_FILE).get(KEY)
    except (FileNotFoundError, CheckpointCorrupt):
        return None
    found = ours.get("uuid") if isinstance(ours, dict) else None
    return found if isinstance(found, str) else None
