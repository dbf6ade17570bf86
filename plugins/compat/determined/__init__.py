"""Old import name of det. Every name is the same object as its new name, which docs/migrating.md lists."""

from __future__ import annotations

from determined import _conflict_check, _finder

__version__ = "0.1.0"

_conflict_check.check_no_conflict()
_finder.install_finder()
_finder.add_old_names(globals())
