"""Calls of all public methods of objects in a forked child.

with ending_children(), core.init() as context:
    outcomes = call_in_child({"train": context.train}, {"status": "busy"})
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from public_api import load_modules, public_names

_SECONDS = 60
"""Time limit of a call, and of the way out of the blocks."""
_LAST = ("cancel", "close", "delete", "kill")
"""Beginnings of the names of methods after which others have nothing left to do."""


class _Hanging(BaseException):
    """End of a call that takes too long."""


@contextmanager
def ending_children() -> Iterator[None]:
    """End forked children that leave the block."""
    parent = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != parent:
            os._exit(0)


def public_classes(*modules: str) -> set[str]:
    """Return the public classes of modules whose objects could depend on their process.

    Those are all but enumerations, errors, records, and classes that users derive from.
    """
    return {
        one.__name__
        for _, one in _public_members(modules)
        if isinstance(one, type)
        and not issubclass(one, (BaseException, Enum, tuple))
        and (hasattr(one, "__exit__") or not (is_dataclass(one) and one.__dataclass_params__.frozen))
        and not inspect.isabstract(one)
    }


def public_blocks(*modules: str) -> set[str]:
    """Return the public classes, functions and methods of modules that belong into a ``with`` statement."""
    found = set()
    for name, one in _public_members(modules):
        methods = {f"{name}.{key}": value for key, value in vars(one).items()} if isinstance(one, type) else {}
        if isinstance(one, type) and hasattr(one, "__exit__"):
            found.add(name)
        for path, function in {name: one, **methods}.items():
            inner = getattr(function, "__wrapped__", None)
            if inspect.isgeneratorfunction(inner) and not path.rpartition(".")[2].startswith("_"):
                found.add(path)
    return found


def _public_members(modules: Iterable[str]) -> Iterator[tuple[str, Any]]:
    for path in modules:
        for name in public_names(load_modules()[path.partition(".")[0]][path]):
            yield name, getattr(import_module(path), name)


def fork_before() -> bool:
    """Fork. Return True in the child, and False in its parent as soon as the child has ended."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        child = os.fork()
    if child:
        assert os.waitpid(child, 0) == (child, 0)
    else:
        signal.alarm(60)  # ends a child that hangs
    return not child


def call_in_child(objects: Mapping[str, object], arguments: Mapping[str, object]) -> dict[str, str]:
    """Call all public methods of objects in a forked child, which then leaves the blocks of the caller by SystemExit.

    Args:
        objects: objects by name.
        arguments: values of parameters without a default by ``object.method.parameter``, or by ``parameter`` for all
            methods.

    Returns:
        The outcome of each call and each property by ``object.method``: ``Error: message``, or "" for success.
    """
    reading, writing = os.pipe()
    if fork_before():
        signal.signal(signal.SIGALRM, _interrupt)
        outcomes = {name: _outcome(objects, name, arguments) for name in _public_names(objects)}
        os.write(writing, json.dumps(outcomes).encode())
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_SECONDS)
        raise SystemExit
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found: dict[str, str] = json.load(pipe)
    return found


def _public_names(objects: Mapping[str, object]) -> list[str]:
    names = [
        f"{name}.{member}"
        for name, one in objects.items()
        for member in dir(type(one))
        if not member.startswith("_")
        and not isinstance(inspect.getattr_static(one, member), (classmethod, staticmethod, type))
    ]
    return sorted(names, key=lambda name: name.rpartition(".")[2].startswith(_LAST))


def _outcome(objects: Mapping[str, object], name: str, arguments: Mapping[str, object]) -> str:
    owner, _, member = name.partition(".")
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    try:
        found = getattr(objects[owner], member)
        if callable(found):
            _use(found(**_arguments(found, name, arguments)))
    except (Exception, _Hanging) as error:  # noqa: BLE001  (the outcome)
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return ""


def _arguments(function: Any, name: str, arguments: Mapping[str, object]) -> dict[str, object]:
    required = [
        one.name
        for one in inspect.signature(function).parameters.values()
        if one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    return {one: arguments.get(f"{name}.{one}", arguments.get(one)) for one in required}


def _use(result: Any) -> None:
    """Begin the work of a method that returns an iterator or a context manager."""
    if isinstance(result, Iterator):
        next(result, None)
    elif isinstance(result, AbstractContextManager) and not isinstance(result, Path):
        with result:
            pass


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise _Hanging(f"not within {_SECONDS:g} s")
