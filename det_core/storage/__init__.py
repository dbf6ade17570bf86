"""Checkpoint storage: the manifest, transfer, and the stores on a mounted file system."""

from __future__ import annotations

from det_core.storage._checkpoints import (
    METADATA_FILE,
    check,
    delete,
    finish,
    metadata,
    restore,
    save,
    scan,
    verify_in_place,
)
from det_core.storage._open import open_storage

__all__ = [
    "METADATA_FILE",
    "check",
    "delete",
    "finish",
    "metadata",
    "open_storage",
    "restore",
    "save",
    "scan",
    "verify_in_place",
]
