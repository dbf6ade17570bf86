"""The old import name of det: every name here is the same object under its new name. docs/migrating.md lists them."""

from __future__ import annotations

from determined import _finder, _neighbour

__version__ = "0.1.0"

_neighbour.refuse()
_finder.install()
_finder.furnish(globals())
