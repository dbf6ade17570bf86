"""Tracking store of experiments, trials, metrics, checkpoints and logs.

SQLAlchemy is imported when a store is opened, not when this package is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_core.lazy import lazy_exports

if TYPE_CHECKING:
    from det_core.tracking._open import AGENT_URL as AGENT_URL
    from det_core.tracking._open import default_url as default_url
    from det_core.tracking._open import det_command as det_command
    from det_core.tracking._open import is_server_url as is_server_url
    from det_core.tracking._open import open_store as open_store

_EXPORTS = {
    "AGENT_URL": "det_core.tracking._open",
    "is_server_url": "det_core.tracking._open",
    "default_url": "det_core.tracking._open",
    "det_command": "det_core.tracking._open",
    "open_store": "det_core.tracking._open",
}

_OWN = {"det_command", "is_server_url"}
"""Names for the modules of det-core, which the contract does not promise."""

__all__ = [name for name in _EXPORTS if name not in _OWN]

__getattr__, __dir__ = lazy_exports(globals(), _EXPORTS)
