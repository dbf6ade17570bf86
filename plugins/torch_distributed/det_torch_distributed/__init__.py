"""Distributed backend that trains on several slots with torch.distributed.

There is nothing to import. Configs select it by ``distributed: {backend: torch_distributed}``.
"""

from __future__ import annotations

__version__ = "0.1.0"
