"""Plugin module of det-compat. It offers ``det migrate``, and fails if another distribution overwrites its files."""

from __future__ import annotations

from collections.abc import Iterator

import det_core
from det_core.specs import CommandSpec
from determined import _conflict_check

_conflict_check.check_no_conflict()


@det_core.hookimpl
def det_commands() -> Iterator[CommandSpec]:
    yield CommandSpec(
        name="migrate",
        target="determined._migration.command:configure",
        help="check code that was written for determined",
    )
