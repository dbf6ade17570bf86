"""Checkpoints in Google Cloud Storage: ``checkpoint_storage: {type: gcs, bucket: ...}``."""

from __future__ import annotations

__version__ = "0.1.0"
