"""Several slots by DeepSpeed. Nothing to import: configs say ``distributed: {backend: deepspeed}``."""

from __future__ import annotations

__version__ = "0.1.0"
