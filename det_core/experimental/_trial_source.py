"""Lookup of the code from which the workers of an experiment import a given trial class."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from det_core.core._python_session import is_interactive
from det_core.errors import InvalidExperimentException, InvalidTrial
from det_core.trial import Trial

_EXAMPLE = "for example command=['train.py', '--flag', 'value']"


@dataclass(frozen=True)
class TrialSource:
    """Source of a trial class, as written to a config."""

    entrypoint: str
    """``"module:Class"``."""
    command: tuple[str, ...] = ()
    """Path of the script that defines the class, relative to the context directory, and its arguments. Empty if no
    script defines it."""

    def config(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config with these values."""
        config = {**given, "entrypoint": self.entrypoint}
        if self.command:
            config["internal"] = {**(given.get("internal") or {}), "native": {"command": list(self.command)}}
        return config


def find_trial_source(trial_def: type[Trial], directory: Path, command: Sequence[str] | None) -> TrialSource | None:
    """Find the source of a class.

    It is the script that ``command`` names, or else the class's module, which may be the running script.

    Args:
        trial_def: class to find.
        directory: context directory.
        command: path of a script in the context directory, followed by its arguments.

    Returns:
        The source, or None if the class is defined in a notebook or interactive session, so that only this process has
        it.

    Raises:
        InvalidExperimentException: the script is not in the context directory, or cannot be imported.
        InvalidTrial: the class cannot be imported by name.
    """
    if command is not None:
        script = directory / command[0]
        return TrialSource(_entrypoint(script.stem, trial_def), (_inside(script, directory), *command[1:]))
    module = sys.modules.get(trial_def.__module__)
    if trial_def.__module__ != "__main__" or module is None:
        if "." in trial_def.__qualname__:
            raise InvalidTrial(
                f"{trial_def!r} is defined inside a function or another class, so workers cannot import it; "
                "define it at the top level of its module"
            )
        return TrialSource(f"{trial_def.__module__}:{trial_def.__qualname__}")
    if is_interactive():
        return None
    script = Path(str(module.__file__))
    return TrialSource(_entrypoint(_name(module, script), trial_def), (_inside(script, directory), *sys.argv[1:]))


def _name(module: ModuleType, script: Path) -> str:
    """Return the name under which workers import the script.

    It is the name given to ``python -m``, or else the stem of the file.
    """
    return module.__spec__.name if module.__spec__ else script.stem


def _entrypoint(module_name: str, trial_def: type[Trial]) -> str:
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise InvalidExperimentException(
            f"the script {module_name!r} cannot be imported by this name, which workers have to do; rename it, for "
            "example to train.py"
        )
    return f"{module_name}:{trial_def.__name__}"


def _inside(script: Path, directory: Path) -> str:
    try:
        path = script.resolve().relative_to(directory.resolve())
    except ValueError:
        raise InvalidExperimentException(
            f"the script {str(script)!r} is not in the context directory {str(directory)!r}, so workers would not have "
            f"it; pass a directory that contains it as context_dir, and its path in there as command, {_EXAMPLE}"
        ) from None
    if not script.is_file():
        raise InvalidExperimentException(
            f"there is no script {str(path)!r} in the context directory {str(directory)!r}; command begins with the "
            f"path of a script there, {_EXAMPLE}"
        )
    return str(path)
