"""Import of the modules in the table (PEP 451, PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from operator import attrgetter
from types import ModuleType
from typing import Any, cast

from determined import _old_names
from determined._old_names import OLD_MODULES, PREPARATIONS, explain_missing

_DISTRIBUTIONS = {"det_estimator", "det_keras", "det_torch", "det_transformers"}
"""Packages with names that det-compat offers, but does not require."""


class _OldModuleFinder:
    """Finder of the old modules, except for those in files, such as `determined.launch`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in OLD_MODULES:
            _refuse(fullname)
            return None
        return spec_from_file_location(
            fullname, _old_names.__file__, loader=cast(Any, self), submodule_search_locations=[]
        )

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None, for the default creation of a module."""

    def exec_module(self, module: ModuleType) -> None:
        add_old_names(vars(module))


def install_finder() -> None:
    """Install the finder, which is tried after those for files."""
    sys.meta_path.append(_OldModuleFinder())


def add_old_names(namespace: dict[str, Any]) -> None:
    """Add the names in the table to a module.

    Args:
        namespace: the module's ``globals()``.
    """
    name = namespace["__name__"]
    namespace["__doc__"] = namespace["__doc__"] or f"Old name of `{OLD_MODULES[name].home or name}`."
    namespace["__getattr__"] = partial(_get, name, namespace)
    namespace["__dir__"] = partial(_public, name)


def _get(module: str, namespace: dict[str, Any], name: str) -> Any:
    path = f"{module}.{name}"
    if path in OLD_MODULES:
        return import_module(path)
    if name == "__all__":
        return _public(module)
    if name.startswith("__") and name != "__version__":  # looked up by tools that inspect every module
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    home, names = OLD_MODULES[module]
    if name in names:
        place = names[name]
    elif home and name in _import(home, path).__all__:
        place = f"{home}:{name}"
    else:
        _refuse(path)
        raise AttributeError(f"module {module!r} has no attribute {name!r}; docs/migrating.md lists old and new names")
    value = namespace[name] = _find(place, path)
    if home in PREPARATIONS:
        _find(PREPARATIONS[home], path)()
    return value


def _public(module: str) -> list[str]:
    home, names = OLD_MODULES[module]
    return sorted({*names, *(_import(home, module).__all__ if home else ())})


def _find(place: str, wanted: str) -> Any:
    module, _, attributes = place.partition(":")
    return attrgetter(attributes)(_import(module, wanted))


def _import(place: str, wanted: str) -> ModuleType:
    try:
        return import_module(place)
    except ModuleNotFoundError as error:
        package = error.name
        if package not in _DISTRIBUTIONS:
            raise
        from det_core.package_commands import package_command

        command = package_command("install", package.replace("_", "-"))
        raise ImportError(f"{wanted} is in {package}, which is not installed; type: {command}", name=wanted) from error


def _refuse(path: str) -> None:
    """Raise ImportError with advice if the name is planned or not supported."""
    if message := explain_missing(path):
        raise ImportError(message, name=path)
