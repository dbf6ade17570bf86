"""How det-compat joins det: it offers nothing, and reports when another distribution's files are over its own."""

from __future__ import annotations

from determined import _neighbour

_neighbour.refuse()
