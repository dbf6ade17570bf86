"""Description of its trial that a checkpoint contains, and lookup of the trial class that it names."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from itertools import accumulate
from pathlib import Path
from typing import Any

from det_core.core import Context
from det_core.errors import CheckpointCorrupt, CheckpointNotFound, InvalidTrial, UntrustedCheckpoint
from det_core.storage import read_object
from det_core.trial._class_lookup import Trial, load_trial_class
from det_core.trial._trial_loop import CODE

__all__ = [
    "describe_trial",
    "find_trial_class",
    "make_trial",
    "read_description",
    "write_description",
]

DESCRIPTION_FILE = "load_data.json"
"""File within a checkpoint that holds the description."""
_DOWNLOADED = "metadata.json"
"""File that downloads of releases without `DESCRIPTION_FILE` wrote, with the config and the hyperparameters."""
_OBJECTS = ("hparams", "experiment_config")
"""Keys of a description whose values are objects or null."""

RecordedCode = Callable[[bool], Path | None]
"""Function that returns a directory with the recorded code of an experiment, or None if it must not run.

Its argument is whether the caller trusts code from anywhere."""


@dataclass(frozen=True)
class _LoadRequest:
    """Context of a call of `find_trial_class`."""

    call: str = ""
    entrypoint: str | None = None
    code: RecordedCode = lambda _: None


_UNKNOWN = _LoadRequest()
_request: ContextVar[_LoadRequest] = ContextVar("load request", default=_UNKNOWN)


def describe_trial(trial_class: type[Trial], core: Context) -> dict[str, Any]:
    """Describe a trial by its class name, hyperparameters and config.

    Secrets remain references, as in the tracking store.

    Args:
        trial_class: class of the trial.
        core: core context of the trial.
    """
    framework = next(base for base in trial_class.__mro__ if Trial in base.__bases__)
    return {
        "trial_type": framework.__name__,
        "trial_cls_spec": f"{trial_class.__module__}:{trial_class.__qualname__}",
        "hparams": core.trial.hparams,
        "experiment_config": core.trial.config,
    }


def write_description(description: Mapping[str, Any], path: Path) -> None:
    """Add the description to the checkpoint at ``path``."""
    (path / DESCRIPTION_FILE).write_text(json.dumps(description, indent=2), encoding="utf-8")


def read_description(path: Path) -> dict[str, Any]:
    """Return the description in the checkpoint at ``path``, any key of which may be missing.

    Raises:
        CheckpointNotFound: the path is no directory.
        CheckpointCorrupt: the file is damaged.
    """
    if not path.is_dir():
        raise CheckpointNotFound(
            f"{path} is not a directory; expected the directory of a checkpoint, as from: det checkpoint download UUID"
        )
    files = (path / name for name in (DESCRIPTION_FILE, _DOWNLOADED))
    file = next((file for file in files if file.exists()), None)
    description = read_object(file) if file else {}
    for key in _OBJECTS:
        if not isinstance(description.get(key), Mapping | None):
            raise CheckpointCorrupt(
                f"{file} is damaged: expected {key} to be an object, found {description[key]!r:.100}"
            )
    return description


def find_trial_class(
    path: Path, description: Mapping[str, Any], kind: type, *, call: str, shared: Collection[str], trust: bool
) -> Any:
    """Return the class of the trial that saved a checkpoint.

    With ``trust``, the class comes from the checkpoint's ``code/`` if that exists. Otherwise it is imported under the
    same name in this process, or else from the recorded code that `loading_as` provides. Unless ``trust`` is set,
    nothing is imported from the checkpoint or a directory above it, because the checkpoint chooses the name. Modules
    that are already imported may be from anywhere, as may the entrypoint of `loading_as`.

    Args:
        path: directory of the checkpoint.
        description: description that `read_description` returned.
        kind: base class that the class must have.
        call: example of how callers pass their own class, such as ``"load(path, MyTrial)"``, for errors.
        shared: top-level modules to take from this process even if ``code/`` contains them. det_core is always shared.
        trust: whether to run code from the checkpoint.

    Raises:
        InvalidTrial: the class is not found, or is of another kind.
        UntrustedCheckpoint: the checkpoint has ``code/``, ``trust`` is False, and there is no recorded code.
    """
    request = _request.get()
    call = request.call or call
    name = description.get("trial_cls_spec") or (description.get("experiment_config") or {}).get("entrypoint")
    if not isinstance(name, str):
        raise InvalidTrial(f"{path} does not name its trial class; pass the class: {call}")
    code = path / CODE
    if code.is_dir():
        recorded = code if trust else request.code(trust)
        if recorded is None:
            raise UntrustedCheckpoint(
                f"{path} contains the code of its trial {name!r}; pass the class to use your own code, "
                f"{call}, or trust=True to run the checkpoint's"
            )
    else:
        try:
            return _import_safely(name, path, kind, call, trust=trust)
        except (InvalidTrial, UntrustedCheckpoint):
            recorded = request.code(trust)
            if recorded is None:
                raise
    with import_from_path(recorded, shared):
        return _import_safely(name, path, kind, call, trust=trust)


@contextmanager
def loading_as(call: str, entrypoint: object = None, code: RecordedCode = lambda _: None) -> Iterator[None]:
    """Let `find_trial_class` know during the block which method was called, and what the tracking store recorded.

    Args:
        call: the call with a class as argument, such as ``"checkpoint.load(trial_class=MyTrial)"``, for errors.
        entrypoint: the recorded entrypoint. If it names a class, it may be imported from anywhere, because no
            checkpoint can change it.
        code: function that provides the recorded code.
    """
    is_class = isinstance(entrypoint, str) and all(map(str.isidentifier, entrypoint.replace(":", ".").split(".")))
    token = _request.set(_LoadRequest(call, str(entrypoint) if is_class else None, code))
    try:
        yield
    finally:
        _request.reset(token)


def make_trial(trial_class: type[Trial], context: Any, arguments: Mapping[str, Any], *, call: str) -> Any:
    """Make a trial outside of training.

    Args:
        trial_class: class of the trial.
        context: context of the trial.
        arguments: arguments of the class in addition to the context.
        call: example of how callers pass these arguments, for errors. `loading_as` may replace it.

    Raises:
        InvalidTrial: the class takes other arguments.
    """
    try:
        inspect.signature(trial_class).bind(context, **arguments)
    except TypeError as error:
        sdk = _request.get().call
        call = f"{sdk.removesuffix(')')}, trial_kwargs={{...}})" if sdk else call
        raise InvalidTrial(
            f"{trial_class.__name__}{inspect.signature(trial_class)} cannot be made with the context and "
            f"{sorted(arguments) or 'no other arguments'}: {error}; pass its arguments: {call}"
        ) from None
    return trial_class(context, **arguments)  # type: ignore[call-arg]


def _import_safely(name: str, path: Path, kind: type, call: str, *, trust: bool) -> type[Trial]:
    """Import the class, unless it is only found in a directory that contains the checkpoint."""
    if trust:
        return _import(name, path, kind, call)
    if entrypoint := _request.get().entrypoint:
        with suppress(InvalidTrial):  # the checkpoint's own name may still work
            load_trial_class(entrypoint)
    with _apart_from(path, name, call):
        return _import(name, path, kind, call)


def _import(name: str, path: Path, kind: type, call: str) -> type[Trial]:
    try:
        trial_class = load_trial_class(name)
    except InvalidTrial as error:
        raise InvalidTrial(
            f"{path} belongs to the trial {name!r}, which cannot be imported here: {error}. Pass the class: {call}"
        ) from error
    if not issubclass(trial_class, kind):
        raise InvalidTrial(
            f"{path} belongs to the trial {name!r}, a {trial_class.__base__}; expected a {kind.__name__}"
        )
    return trial_class


@contextmanager
def _apart_from(path: Path, name: str, call: str) -> Iterator[None]:
    """Skip import directories within or above a checkpoint, and refuse modules that are only found there."""
    module = name.partition(":")[0]
    if not all(map(str.isidentifier, module.split("."))):
        raise InvalidTrial(f"{path} belongs to the trial {name!r}; expected 'module:Class'. Pass the class: {call}")
    before = list(sys.path)
    apart = [entry for entry in before if not _touches(entry, path)]
    sys.path[:] = apart
    try:
        for prefix in accumulate(module.split("."), "{}.{}".format):
            if prefix not in sys.modules and not _is_apart(prefix, path):
                sys.path[:] = before
                if _find(prefix):
                    raise UntrustedCheckpoint(
                        f"{path} belongs to the trial {name!r}, but {prefix} is imported from a directory that "
                        f"contains the checkpoint, whose code could run; pass the class, {call}, or trust=True to "
                        "import it"
                    )
                sys.path[:] = apart
                break
            if prefix != module:  # otherwise the next search would import it from any directory
                with suppress(ImportError):  # raised again by the actual import
                    importlib.import_module(prefix)
        yield
    finally:
        sys.path[:] = [*before, *(entry for entry in sys.path if entry not in before)]


def _find(module: str) -> ModuleSpec | None:
    """Find a module without running it. Its package must be imported already."""
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None


def _is_apart(module: str, path: Path) -> bool:
    """Return whether a module is found, and only outside of the checkpoint."""
    parent = sys.modules.get(module.rpartition(".")[0])
    if any(_touches(entry, path) for entry in getattr(parent, "__path__", ())):
        return False
    spec = _find(module)
    # A link may lead into the checkpoint from anywhere.
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or ())]
    return bool(places) and not any(Path(place).resolve().is_relative_to(path.resolve()) for place in places)


def _touches(entry: str, path: Path) -> bool:
    """Return whether an import directory is within or above the checkpoint, with or without resolving links."""
    place = Path(entry)
    pairs = [(place.absolute(), path.absolute()), (place.resolve(), path.resolve())]
    return any(one.is_relative_to(other) or other.is_relative_to(one) for one, other in pairs)


@contextmanager
def import_from_path(path: str | os.PathLike[str], shared: Collection[str] = ()) -> Iterator[None]:
    """Import modules in the block from a directory, and restore the previous modules afterwards.

    Modules of the same names from elsewhere are set aside during the block.

    Args:
        path: directory, such as the ``code/`` of a downloaded checkpoint next to a newer version of the same trial.
        shared: top-level modules to take from this process even if the directory contains them. det_core is always
            shared.

    Raises:
        NotADirectoryError, FileNotFoundError: ``path`` is not a directory.
    """
    directory = Path(path)
    names = {entry.stem for entry in directory.iterdir()}.difference(shared, {"det_core"})

    def take_out() -> dict[str, Any]:
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in names}

    before, writes = take_out(), sys.dont_write_bytecode
    sys.path.insert(0, str(directory))
    sys.dont_write_bytecode = True  # a checkpoint is only read
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes
        sys.path.remove(str(directory))
        take_out()
        sys.modules.update(before)
