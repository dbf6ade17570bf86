"""Checkpoint storage: the manifest, transfer, and the stores on a mounted file system."""

from __future__ import annotations

from det_core.storage._checksum import Entry, checksum
from det_core.storage._manifest import METADATA_FILE, Manifest, copied_from, read_object, sign_copy
from det_core.storage._open import open_storage
from det_core.storage._remove import ALL, check, delete, selector
from det_core.storage._restore import StoredCheckpoint, find, metadata, restore
from det_core.storage._save import Selector, adopt_files, publish, put_files, save, scan
from det_core.storage._transfer import Progress
from det_core.storage._tree import is_inside
from det_core.storage.objects import ObjectStorage

__all__ = [
    "ALL",
    "METADATA_FILE",
    "Entry",
    "Manifest",
    "ObjectStorage",
    "Progress",
    "Selector",
    "StoredCheckpoint",
    "adopt_files",
    "check",
    "checksum",
    "copied_from",
    "delete",
    "find",
    "is_inside",
    "metadata",
    "open_storage",
    "publish",
    "put_files",
    "read_object",
    "restore",
    "save",
    "scan",
    "selector",
    "sign_copy",
]
