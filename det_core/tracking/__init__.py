"""Tracking store of experiments, trials, metrics, checkpoints and logs.

SQLAlchemy is imported when a store is opened, not when this package is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_core.lazy import exports

if TYPE_CHECKING:
    from det_core.tracking._later import open_later as open_later
    from det_core.tracking._open import open_store as open_store

_EXPORTS = {
    "open_later": "det_core.tracking._later",
    "open_store": "det_core.tracking._open",
}

__all__ = [*_EXPORTS]

__getattr__, __dir__ = exports(globals(), _EXPORTS)
