"""Plugin that records experiments in Weights & Biases.

Users import nothing. A config selects it by ``observers: {wandb: {}}``.
"""

from __future__ import annotations

__version__ = "0.1.0"
