"""The one record of experiments, trials, metrics, checkpoints and logs. Opening it, not this, imports SQLAlchemy."""

from __future__ import annotations

from det_core.tracking._later import open_later as open_later
from det_core.tracking._open import open_store as open_store

__all__ = ["open_later", "open_store"]
