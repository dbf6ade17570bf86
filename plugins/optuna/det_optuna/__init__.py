"""Plugin for searches with Optuna's samplers. Users import nothing. A config selects it by ``searcher: {name: optuna}``."""

from __future__ import annotations

__version__ = "0.1.0"
