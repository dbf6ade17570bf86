"""Plugin that runs the trials of det with Slurm.

A config selects it by ``launcher: {type: slurm, slots_per_node: 4, gres: gpu}``.
"""

from __future__ import annotations

__version__ = "0.1.0"
