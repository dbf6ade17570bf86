"""Several slots by Horovod. Nothing to import: configs say ``distributed: {backend: horovod}``."""

from __future__ import annotations

__version__ = "0.1.0"
