"""Old import name of det. Every name is the same object as its new name, which docs/migrating.md lists."""

from __future__ import annotations

from determined import _finder, _neighbour

__version__ = "0.1.0"

_neighbour.refuse()
_finder.install()
_finder.furnish(globals())
