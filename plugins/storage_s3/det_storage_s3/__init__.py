"""Checkpoints of det in S3. There is nothing to import: a config selects it by ``checkpoint_storage: {type: s3}``."""

from __future__ import annotations

__version__ = "0.1.0"
