"""Removing checkpoints, and trying a store out."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

from det_core.errors import StorageError
from det_core.interfaces.storage import StorageManager
from det_core.storage._manifest import METADATA_FILE


def delete(store: StorageManager, storage_id: str) -> None:
    """Remove the checkpoint, or the remains of one that was never finished: ``metadata.json`` first."""
    names = store.list(storage_id)
    store.delete(storage_id, [name for name in (METADATA_FILE, *names) if name in names])


def check(store: StorageManager) -> None:
    """Write, read and delete a small file, so that a wrong store fails before training starts."""
    storage_id, content = f"check-{uuid.uuid4()}", b"det checks this storage"
    with tempfile.TemporaryDirectory() as scratch:
        path, back = Path(scratch, "out"), Path(scratch, "back")
        path.write_bytes(content)
        store.put(storage_id, "check.txt", path)
        try:
            store.get(storage_id, "check.txt", back)
            if back.read_bytes() != content:
                raise StorageError(f"checkpoint storage returned {back.read_bytes()!r} for {content!r}")
        finally:
            store.delete(storage_id, ["check.txt"])
