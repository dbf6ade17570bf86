"""Plugin that runs the trials of det on a Ray cluster.

A config selects it by ``launcher: {type: ray, slots_per_node: 4}``.
"""

from __future__ import annotations

__version__ = "0.1.0"
