"""The older import name of the SDK; see `determined`."""

from __future__ import annotations

from determined import _finder

_finder.furnish(globals())
