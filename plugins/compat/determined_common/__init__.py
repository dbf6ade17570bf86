"""Older import name of the SDK. See `determined`."""

from __future__ import annotations

from determined import _finder

_finder.add_old_names(globals())
