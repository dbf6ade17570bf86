"""Plugin for searches with Optuna's samplers. A config selects it as ``searcher: {name: optuna}``."""

from __future__ import annotations

__version__ = "0.1.0"
