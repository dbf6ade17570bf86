"""Lookup of the framework of a trial class in source code, without running the code or importing the framework."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from det_core.plugins import plugin_registry
from det_core.specs import FrameworkSpec

UNREADABLE = (ValueError, RecursionError, MemoryError)
"""Errors of the parser of Python besides SyntaxError, for a null byte and for deep expressions."""


def find_framework(entrypoint: str, directory: Path) -> FrameworkSpec | None:
    """Return the framework of a trial class.

    It is None if the source of the class and of its bases does not show it, or if it is not installed here.

    Args:
        entrypoint: the class as ``"module:Class"``.
        directory: directory with the user's code.
    """
    classes = [*_find_classes(entrypoint.replace(":", "."), directory)]
    registry = plugin_registry()
    name = registry.choose("det_choose_framework", mro=classes)
    return cast("FrameworkSpec", registry.find("framework", name)) if name in registry.names("framework") else None


def _find_classes(name: str, directory: Path) -> Iterator[str]:
    """Yield the qualified names of a class and its bases that are defined in files, or in modules without a file.

    Args:
        name: name of the class, in its module or in one that imports it.
        directory: directory with the user's code.
    """
    names = [name]
    for each in names:  # grows
        module, _, attribute = each.rpartition(".")
        file = _find_file(module, directory)
        if file is None:
            yield each
            continue
        origins, bases = _read_names(module, file)
        found = [origins.get(attribute)]
        if found == [each]:  # defined here
            yield each
            found = [_qualify(base, origins) for base in bases[attribute]]
        names += [origin for origin in found if origin and origin not in names]


def _qualify(base: str, origins: Mapping[str, str]) -> str | None:
    head, dot, rest = base.partition(".")
    return f"{origins[head]}{dot}{rest}" if origins.get(head) else None


def _find_file(module: str, directory: Path) -> Path | None:
    """Return the Python file of a module, which is in the user's code or installed."""
    roots = [directory]
    with suppress(ImportError, ValueError):
        if spec := find_spec(module.partition(".")[0]):  # does not import it
            packages = [Path(package).parent for package in spec.submodule_search_locations or ()]
            roots += packages or [Path(spec.origin or "").parent]
    path = module.replace(".", "/")
    files = (root / file for root in roots for file in (f"{path}.py", f"{path}/__init__.py"))
    return next((file for file in files if file.is_file()), None)


def _read_names(module: str, file: Path) -> tuple[dict[str, str], dict[str, Sequence[str]]]:
    """Return the qualified origins of the classes and imported names in a file, and the bases of its classes.

    A name with several meanings has an empty origin.
    """
    origins: dict[str, str] = {}
    bases: dict[str, Sequence[str]] = {}
    package = module.split(".") if file.stem == "__init__" else module.split(".")[:-1]
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, *UNREADABLE):
        return origins, bases
    for node in ast.walk(tree):
        bound: list[tuple[str, str]] = []
        if isinstance(node, ast.ClassDef):
            bound = [(node.name, "" if node.name in bases else f"{module}.{node.name}")]
            bases[node.name] = [*map(ast.unparse, node.bases)]
        elif isinstance(node, ast.Import):
            bound = [(one.asname, one.name) if one.asname else (one.name.partition(".")[0],) * 2 for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*parents, *filter(None, [node.module])])
            bound = [(one.asname or one.name, f"{source}.{one.name}") for one in node.names]
        for name, origin in bound:
            origins[name] = origin if origins.get(name, origin) == origin else ""
    return origins, bases
