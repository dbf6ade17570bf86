"""Plugin for checkpoints in file systems of fsspec, such as SFTP.

Users import nothing. A config selects it by ``checkpoint_storage: {type: fsspec, url: ...}``.
"""

from __future__ import annotations

__version__ = "0.1.0"
