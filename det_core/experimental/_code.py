"""Where the workers of an experiment find a trial class that somebody has in hand."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from det_core.errors import InvalidExperimentException, InvalidTrial
from det_core.experimental._session import interactive
from det_core.trial import Trial

_EXAMPLE = "for example command=['train.py', '--flag', 'value']"


@dataclass(frozen=True)
class Code:
    """What a config says of the class."""

    entrypoint: str
    command: tuple[str, ...] = ()
    """The path of the script that has it, relative to the context directory, and its arguments; empty if none does."""

    def config(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The config with it."""
        config = {**given, "entrypoint": self.entrypoint}
        if self.command:
            config["internal"] = {**(given.get("internal") or {}), "native": {"command": list(self.command)}}
        return config


def locate(trial_def: type[Trial], directory: Path, command: Sequence[str] | None) -> Code | None:
    """By the script that ``command`` names, else by the class's module, which may be the script that is running.

    Returns:
        None: it is a class of a notebook or an interactive session, which only this process has.

    Raises:
        InvalidExperimentException: the script is not in the context directory, or cannot be imported.
        InvalidTrial: the class cannot be found by a name.
    """
    if command is not None:
        script = directory / command[0]
        return Code(_entrypoint(script.stem, trial_def), (_inside(script, directory), *command[1:]))
    module = sys.modules.get(trial_def.__module__)
    if trial_def.__module__ != "__main__" or module is None:
        if "." in trial_def.__qualname__:
            raise InvalidTrial(
                f"{trial_def!r} is defined inside of something else, where no worker finds it; "
                "define it at the top level of its module"
            )
        return Code(f"{trial_def.__module__}:{trial_def.__qualname__}")
    if interactive():
        return None
    script = Path(str(module.__file__))
    return Code(_entrypoint(_name(module, script), trial_def), (_inside(script, directory), *sys.argv[1:]))


def _name(module: ModuleType, script: Path) -> str:
    """As which workers import the script: as ``python -m`` did, else by the stem of its file."""
    return module.__spec__.name if module.__spec__ else script.stem


def _entrypoint(module_name: str, trial_def: type[Trial]) -> str:
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise InvalidExperimentException(
            f"the script {module_name!r} cannot be imported by this name, as the workers will; rename it, for example "
            "to train.py"
        )
    return f"{module_name}:{trial_def.__name__}"


def _inside(script: Path, directory: Path) -> str:
    try:
        path = script.resolve().relative_to(directory.resolve())
    except ValueError:
        raise InvalidExperimentException(
            f"the script {str(script)!r} is not in the context directory {str(directory)!r}, so workers would not have "
            f"it; pass context_dir= a directory that it is in, and command= the script below that, {_EXAMPLE}"
        ) from None
    if not script.is_file():
        raise InvalidExperimentException(
            f"there is no script {str(path)!r} in the context directory {str(directory)!r}; command begins with the "
            f"path of a script there, {_EXAMPLE}"
        )
    return str(path)
