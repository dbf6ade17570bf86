"""Communication between the workers of one trial, with connections and collectives of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_core.lazy import lazy_exports

if TYPE_CHECKING:
    from det_core.comm._mesh import Mesh as Mesh
    from det_core.comm._payload import dumps as dumps
    from det_core.comm._payload import loads as loads
    from det_core.comm._payload import loads_all as loads_all
    from det_core.comm._ranks import Ranks as Ranks

_EXPORTS = {
    "Mesh": "det_core.comm._mesh",
    "Ranks": "det_core.comm._ranks",
    "dumps": "det_core.comm._payload",
    "loads": "det_core.comm._payload",
    "loads_all": "det_core.comm._payload",
}

__all__ = [*_EXPORTS]

__getattr__, __dir__ = lazy_exports(globals(), _EXPORTS)  # a worker that is alone needs no connections
