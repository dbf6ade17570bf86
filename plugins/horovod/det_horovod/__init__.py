"""Distributed training with Horovod. Configs select it with ``distributed: {backend: horovod}``."""

from __future__ import annotations

__version__ = "0.1.0"
