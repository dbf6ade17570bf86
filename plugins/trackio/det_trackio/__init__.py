"""Plugin that records experiments in Trackio.

Users import nothing. A config selects it by ``observers: {trackio: {}}``.
"""

from __future__ import annotations

__version__ = "0.1.0"
