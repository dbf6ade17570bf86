"""Several slots by torch.distributed. Nothing to import: configs say ``distributed: {backend: torch_distributed}``."""

from __future__ import annotations

__version__ = "0.1.0"
