"""Plugin for checkpoints in Google Cloud Storage.

A config selects it by ``checkpoint_storage: {type: gcs, bucket: ...}``.
"""

from __future__ import annotations

__version__ = "0.1.0"
