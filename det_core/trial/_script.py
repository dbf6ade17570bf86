"""Scripts that call `det_core.experimental.create`: whoever loads their trial class runs them up to that call."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from det_core.trial._trial import Trial

_loading: ContextVar[bool] = ContextVar("loading", default=False)


class HandedOver(BaseException):  # which no `except Exception` of the script stops
    """The script called `create`; nothing after that call runs."""

    def __init__(self, trial_class: type[Trial]) -> None:
        super().__init__(trial_class)
        self.trial_class = trial_class
        self._module = sys.modules.get(trial_class.__module__)

    def keep_module(self) -> None:
        """Put the script's module back, which the import system dropped; what is pickled names it."""
        if self._module is not None:
            sys.modules.setdefault(self.trial_class.__module__, self._module)


def hand_over(trial_class: type[Trial]) -> None:
    """End the script, if it is being run for its trial class; else do nothing."""
    if _loading.get():
        raise HandedOver(trial_class)


@contextmanager
def running(module_name: str, command: Sequence[str]) -> Iterator[None]:
    """Import a module meanwhile that may be such a script.

    Args:
        command: the script's path and the arguments that it finds in ``sys.argv``, now and later; empty if it is none.
    """
    if command:
        sys.argv = list(command)
        sys.path.insert(0, str(Path(command[0]).absolute().parents[module_name.count(".")]))
    token = _loading.set(True)
    try:
        yield
    finally:
        _loading.reset(token)
