"""Plugin module of det-compat. It offers ``det migrate`` and knows the frameworks of old trials.

Its import fails if another distribution overwrites files of det-compat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import det_core
from det_core.specs import CommandSpec
from determined import _conflict_check

_conflict_check.check_no_conflict()

_FRAMEWORKS = {
    "determined.estimator.EstimatorTrial": "estimator",
    "determined.keras.TFKerasTrial": "keras",
    "determined.pytorch.PyTorchTrial": "pytorch",
}
"""Old names of trial classes mapped to frameworks. Runners see them, because they read code and do not import it."""


@det_core.hookimpl
def det_commands() -> Iterator[CommandSpec]:
    yield CommandSpec(
        name="migrate",
        target="determined._migration.command:configure",
        help="check code that was written for determined",
    )


@det_core.hookimpl
def det_choose_framework(mro: Sequence[str]) -> str | None:
    return next((_FRAMEWORKS[name] for name in mro if name in _FRAMEWORKS), None)
