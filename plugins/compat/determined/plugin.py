"""Plugin module of det-compat. It registers nothing, and fails if another distribution overwrites its files."""

from __future__ import annotations

from determined import _conflict_check

_conflict_check.check_no_conflict()
