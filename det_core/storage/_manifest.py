"""``metadata.json``: the user's metadata, and under ``_det`` what was stored and how to verify it.

Format 1::

    {"steps_completed": 9, "_det": {"format": 1, "files": {"state.pth": [8192, "9ae0d1c2"], "logs/": [0, "00000000"]}}}

Sizes are in bytes; checksums are CRC-32C (Castagnoli, RFC 3720 B.4) in hexadecimal.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from det_core.errors import CheckpointCorrupt
from det_core.interfaces.storage import StorageManager
from det_core.storage._checksum import Entry

METADATA_FILE = "metadata.json"
KEY = "_det"
FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """The contents of ``metadata.json``. ``files`` is None in checkpoints of the original, which has none."""

    metadata: Mapping[str, Any]
    files: Mapping[str, Entry] | None

    def to_json(self) -> str:
        files = {path: [entry.size, entry.crc32c] for path, entry in (self.files or {}).items()}
        return json.dumps({**self.metadata, KEY: {"format": FORMAT, "files": files}})

    @staticmethod
    def from_json(text: bytes, storage_id: str) -> Manifest:
        """Parse it.

        Raises:
            CheckpointCorrupt: not JSON of this form, or a format that this release does not know.
        """
        try:
            content = json.loads(text)
            ours = content.pop(KEY, None)
            if ours is None:
                warnings.warn(f"checkpoint {storage_id} has no checksums (another system wrote it)", stacklevel=2)
                return Manifest(content, None)
            known = ours["format"] == FORMAT
            files = {path: Entry(int(size), str(crc)) for path, (size, crc) in ours["files"].items()} if known else {}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointCorrupt(f"metadata.json of checkpoint {storage_id} is damaged: {error}") from error
        if not known:
            raise CheckpointCorrupt(
                f"checkpoint {storage_id} has format {ours['format']}, this release reads format {FORMAT}; "
                "upgrade det-core"
            )
        return Manifest(content, files)


def put_manifest(store: StorageManager, storage_id: str, manifest: Manifest) -> int:
    """Write ``metadata.json``, or replace it; visible and durable on return. Returns its size in bytes."""
    text = manifest.to_json().encode()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, METADATA_FILE)
        path.write_bytes(text)
        store.put(storage_id, METADATA_FILE, path)
    store.sync(storage_id, [METADATA_FILE])
    return len(text)


def sign_copy(directory: Path, storage_id: str, metadata: Mapping[str, Any]) -> None:
    """Note in a restored copy which checkpoint it is, and the user's metadata of today."""
    path = directory / METADATA_FILE
    ours = json.loads(path.read_bytes()).get(KEY) or {}
    path.write_text(json.dumps({**metadata, KEY: {**ours, "uuid": storage_id}}, indent=2))


def copied_from(directory: Path) -> str | None:
    """Which checkpoint a directory is a copy of, by `sign_copy`; None: it does not say."""
    path = directory / METADATA_FILE
    if not path.is_file():
        return None
    uuid = (json.loads(path.read_bytes()).get(KEY) or {}).get("uuid")
    return None if uuid is None else str(uuid)
