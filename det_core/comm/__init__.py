"""Communication between the workers of one trial, with connections and collectives of bytes."""

from __future__ import annotations

from det_core.comm._group import Group
from det_core.comm._mesh import Mesh
from det_core.comm._notices import Notices
from det_core.comm._payload import dumps, loads, loads_all
from det_core.comm._ranks import Ranks

__all__ = ["Group", "Mesh", "Notices", "Ranks", "dumps", "loads", "loads_all"]
