"""Communication between the workers of one trial, with connections and collectives of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_core.lazy import lazy_exports

if TYPE_CHECKING:
    from det_core.comm._mesh import Mesh as Mesh
    from det_core.comm._payload import pickle_payload as pickle_payload
    from det_core.comm._payload import unpickle_payload as unpickle_payload
    from det_core.comm._payload import unpickle_payloads as unpickle_payloads
    from det_core.comm._ranks import Ranks as Ranks

_EXPORTS = {
    "Mesh": "det_core.comm._mesh",
    "Ranks": "det_core.comm._ranks",
    "pickle_payload": "det_core.comm._payload",
    "unpickle_payload": "det_core.comm._payload",
    "unpickle_payloads": "det_core.comm._payload",
}

__all__ = [*_EXPORTS]

__getattr__, __dir__ = lazy_exports(globals(), _EXPORTS)  # a worker that is alone needs no connections
