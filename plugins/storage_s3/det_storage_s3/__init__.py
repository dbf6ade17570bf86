"""Plugin for checkpoints in S3. Users import nothing. A config selects it by ``checkpoint_storage: {type: s3}``."""

from __future__ import annotations

__version__ = "0.1.0"
