"""The base of all trial classes, and finding the one that a config names."""

from __future__ import annotations

import importlib
from abc import ABC
from typing import Any

from det_core.errors import InvalidTrial


class Trial(ABC):  # noqa: B024  (frameworks add the abstract methods)
    """A model and how to train it. Frameworks derive their trial classes from this one."""

    trial_context_class: type[Any] | None = None
    """The class of the context that ``__init__`` receives."""


def load_trial_class(entrypoint: str) -> type[Trial]:
    """Import the class that ``"module:Class"`` names.

    Raises:
        InvalidTrial: it does not import, or is no trial; says what was found instead.
    """
    module_name, _, class_name = entrypoint.partition(":")
    expected = "expected 'module:Class', where the class derives from a framework's trial such as PyTorchTrial"
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if missing.partition(".")[0] != module_name.partition(".")[0]:
            package = missing.partition(".")[0]
            hint = f"; try: pip install {package.replace('_', '-')}" if package.startswith("det_") else ""
            raise InvalidTrial(
                f"entrypoint {entrypoint!r} needs the module {missing!r}, which is not installed{hint}"
            ) from error
        raise InvalidTrial(
            f"entrypoint {entrypoint!r}: there is no module {missing!r} in the context directory; {expected}"
        ) from error
    trial_class = getattr(module, class_name, None)
    if trial_class is None:
        raise InvalidTrial(f"entrypoint {entrypoint!r}: the module {module_name!r} has no {class_name!r}; {expected}")
    if not (isinstance(trial_class, type) and issubclass(trial_class, Trial)):
        raise InvalidTrial(f"entrypoint {entrypoint!r} is {trial_class!r}, which is no trial; {expected}")
    _check_complete(trial_class, entrypoint)
    return trial_class


def _check_complete(trial_class: type[Trial], entrypoint: str) -> None:
    missing = sorted(getattr(trial_class, "__abstractmethods__", ()))
    if missing:
        raise InvalidTrial(
            f"the trial {entrypoint!r} lacks {', '.join(f'{name}()' for name in missing)}; "
            f"every {trial_class.__base__.__name__ if trial_class.__base__ else 'trial'} must define them"
        )
