"""How the workers of one trial talk: connections, and collectives of bytes over them."""

from __future__ import annotations

from det_core.comm._group import Group
from det_core.comm._mesh import Mesh
from det_core.comm._message import Buffer
from det_core.comm._notices import Notices
from det_core.comm._ranks import Ranks

__all__ = ["Buffer", "Group", "Mesh", "Notices", "Ranks"]
