"""Library shared by det's launchers for clusters. It is not a plugin and registers nothing."""

from __future__ import annotations

__version__ = "0.1.0"
