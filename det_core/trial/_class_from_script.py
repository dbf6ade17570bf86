"""Loading of trial classes from scripts that call `det_core.experimental.create`.

Such a script is run up to that call, which passes its trial class to the loading process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from det_core.trial._trial_class import Trial

_loading: ContextVar[bool] = ContextVar("loading", default=False)
"""Whether a module is being imported for its trial class."""


class TrialClassHandedOver(BaseException):  # so that `except Exception` in the script does not catch it
    """The script called `create` with its trial class. Nothing after that call runs.

    Attributes:
        trial_class: class that the script passed to `create`.
    """

    def __init__(self, trial_class: type[Trial]) -> None:
        super().__init__(trial_class)
        self.trial_class = trial_class
        self._module = sys.modules.get(trial_class.__module__)

    def keep_module(self) -> None:
        """Restore the script's module, which the import system dropped. Pickled objects refer to it."""
        if self._module is not None:
            sys.modules.setdefault(self.trial_class.__module__, self._module)


def hand_over_trial_class(trial_class: type[Trial]) -> None:
    """End the script if it is being run for its trial class. Otherwise do nothing."""
    if _loading.get():
        raise TrialClassHandedOver(trial_class)


@contextmanager
def importing_script(module_name: str, command: Sequence[str]) -> Iterator[None]:
    """Prepare the block for importing a module that may be such a script.

    Args:
        module_name: module to import in the block.
        command: path of the script and its arguments, which become ``sys.argv`` from now on. Empty if it is no script.
    """
    if command:
        sys.argv = list(command)
        sys.path.insert(0, str(Path(command[0]).absolute().parents[module_name.count(".")]))
    token = _loading.set(True)
    try:
        yield
    finally:
        _loading.reset(token)
