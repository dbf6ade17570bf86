"""Base class of all trials, and lookup of the class that a config names and of the framework that trains it."""

from __future__ import annotations

import importlib
import sys
from abc import ABC
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

from det_core.errors import InvalidTrial
from det_core.plugins import plugin_registry
from det_core.specs import FrameworkSpec

_loading: ContextVar[bool] = ContextVar("loading", default=False)
"""Whether a module is being imported for its trial class."""


class Trial(ABC):  # noqa: B024  (frameworks add the abstract methods)
    """A model and the code that trains it. Frameworks derive their trial classes from this class."""

    trial_context_class: type[Any] | None = None
    """Class of the context that ``__init__`` receives."""


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
def _importing_script(module_name: str, command: Sequence[str]) -> Iterator[None]:
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


def load_trial_class(entrypoint: str, command: Sequence[str] = ()) -> type[Trial]:
    """Import the class that ``"module:Class"`` names.

    A module that calls `det_core.experimental.create` is a script. It runs up to that call, which provides the class.

    Args:
        entrypoint: ``"module:Class"``.
        command: path of such a script, followed by its arguments.

    Raises:
        InvalidTrial: the class cannot be imported, or is not a trial. The message says what was found instead.
    """
    module_name, _, class_name = entrypoint.partition(":")
    expected = "expected 'module:Class', where the class derives from a framework's trial such as PyTorchTrial"
    if module_name[:1] in ("", "."):
        raise InvalidTrial(f"entrypoint {entrypoint!r} names no module; {expected}")
    try:
        with _importing_script(module_name, command):
            trial_class = getattr(importlib.import_module(module_name), class_name, None)
    except TrialClassHandedOver as call:
        call.keep_module()
        trial_class = call.trial_class
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if missing.partition(".")[0] != module_name.partition(".")[0]:
            from det_core.package_commands import package_command

            package = missing.partition(".")[0]
            command = package_command("install", package.replace("_", "-"))
            hint = f"; try: {command}" if package.startswith("det_") else ""
            raise InvalidTrial(
                f"entrypoint {entrypoint!r} needs the module {missing!r}, which is not installed{hint}"
            ) from error
        raise InvalidTrial(
            f"entrypoint {entrypoint!r}: there is no module {missing!r} in the context directory; {expected}"
        ) from error
    if trial_class is None:
        from det_core.similar_names import suggest_name

        classes = [name for name, value in vars(sys.modules[module_name]).items() if isinstance(value, type)]
        raise InvalidTrial(
            f"entrypoint {entrypoint!r}: the module {module_name!r} has no {class_name!r}; {expected}"
            f"{suggest_name(class_name, classes)}"
        )
    if not (isinstance(trial_class, type) and issubclass(trial_class, Trial)):
        raise InvalidTrial(f"entrypoint {entrypoint!r} is {trial_class!r}, which is not a trial; {expected}")
    _check_complete(trial_class, entrypoint)
    return trial_class


def _check_complete(trial_class: type[Trial], entrypoint: str) -> None:
    missing = sorted(getattr(trial_class, "__abstractmethods__", ()))
    if missing:
        raise InvalidTrial(
            f"the trial {entrypoint!r} does not define {', '.join(f'{name}()' for name in missing)}; "
            f"every {trial_class.__base__.__name__ if trial_class.__base__ else 'trial'} must define them"
        )


def framework_of(trial_class: type[Trial]) -> FrameworkSpec:
    """Return the framework that trains trials of this class.

    Raises:
        InvalidTrial: no installed framework trains them.
        PluginClash: several frameworks claim them.
    """
    mro = [f"{base.__module__}.{base.__qualname__}" for base in trial_class.__mro__]
    name = plugin_registry().choose("det_choose_framework", mro=mro)
    if name is None:
        from det_core.package_commands import package_command

        known = ", ".join(plugin_registry().names("framework"))
        installed = known or f"none, try: {package_command('install', 'det-torch')}"
        raise InvalidTrial(f"no installed framework trains {mro[0]}, a {mro[1]} (installed: {installed})")
    return cast("FrameworkSpec", plugin_registry().find("framework", name))
