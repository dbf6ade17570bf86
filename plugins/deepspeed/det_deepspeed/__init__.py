"""Distributed training with DeepSpeed. Configs select it with ``distributed: {backend: deepspeed}``."""

from __future__ import annotations

__version__ = "0.1.0"
