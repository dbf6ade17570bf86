"""Plugin for checkpoints in Azure Blob Storage.

Users import nothing. A config selects it by ``checkpoint_storage: {type: azure, container: ...}``.
"""

from __future__ import annotations

__version__ = "0.1.0"
