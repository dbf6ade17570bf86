"""Lookup of TensorFlow's names in the files of the installed release, because its import takes seconds."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_KERAS = ("initializers", "losses", "metrics", "optimizers")
"""Modules of Keras that ``tf`` has, too."""
_INTERNAL = ("core", "dtensor", "python", "security", "tools", "tsl")
"""Packages in the directory of TensorFlow that are no part of its API."""
_UNKNOWN = ("compat", "summary")
_PRIVATE = "private modules change with each release, so use a public name"


def explain_tensorflow_name(path: str) -> str | None:
    """Return why a name of TensorFlow does not exist and what to use instead, or None if it does or nothing is known.

    Args:
        path: dotted path, which may end with attributes of an object. Names of ``tf.compat`` and ``tf.summary``, which
            other packages add to, are not looked up.
    """
    package, *parts = path.split(".")
    root = _directory(package) if package == "tensorflow" else None
    if root is None or not parts or parts[0] in _UNKNOWN or parts[0].startswith("__"):
        return None
    if parts[0] in _INTERNAL and (root / parts[0]).is_dir():
        missing = _first_missing(root, parts)
        return f"{_name(parts, missing)}: TensorFlow 2.15 does not have it; {_PRIVATE}" if missing else None
    missing = _first_missing_public(parts, 2)
    if missing is None:
        return None
    if _first_missing_public(parts[:missing], 1) is None:
        return f"{_name(parts, missing)}: TensorFlow 2 has it only as {_name(['compat', 'v1', *parts], missing + 2)}"
    return f"{_name(parts, missing)}: TensorFlow 2.15 does not have it; use another public name"


def _name(parts: Sequence[str], count: int) -> str:
    return ".".join(["tensorflow", *parts[:count]])


def _first_missing_public(parts: Sequence[str], version: int) -> int | None:
    """Return the number of parts up to the first that does not exist in a version of the public API, or None.

    Args:
        parts: path below ``tensorflow``.
        version: 1 for the API of ``tf.compat.v1``, else 2.
    """
    api, own = _api_directory(parts[0], version), _directory("tensorflow")
    if own is None or api is None or not (api / "__init__.py").exists():  # not the layout of TensorFlow 2.15
        return None
    if api.name == parts[0]:
        missing = _first_missing(api, parts[1:])
        return missing and missing + 1
    if version == 2 and parts[0] in _exported(own / "__init__.py") and not (api / parts[0]).is_dir():
        return None
    return _first_missing(api, parts)


def _api_directory(first: str, version: int) -> Path | None:
    """Return the directory of the API with the names below ``tf`` that start with ``first``, if it is installed."""
    if first == "estimator":
        package, below = "tensorflow_estimator", f"python/estimator/api/_v{version}/estimator"
    elif first == "keras" or (version == 2 and first in _KERAS):
        package, below = "keras", f"api/_v{version}/keras"
    else:
        package, below = "tensorflow", "_api/v2" if version == 2 else "_api/v2/compat/v1"
    directory = _directory(package)
    return directory / below if directory else None


def _first_missing(directory: Path, parts: Sequence[str]) -> int | None:
    """Return the number of parts up to the first that is neither a module nor a name of its package, or None."""
    for number, part in enumerate(parts, 1):
        if (directory / part).is_dir():
            directory /= part
        elif part.startswith("__") or part in _exported(directory / "__init__.py") or any(directory.glob(f"{part}.*")):
            return None  # attributes of an object or a module are not looked up
        else:
            return number
    return None


@cache
def _directory(package: str) -> Path | None:
    spec = find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


@cache
def _exported(file: Path) -> frozenset[str]:
    """Return the names that a module imports, which are those that a package of an API offers."""
    if not file.exists():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imports = (node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
    return frozenset(one.asname or one.name for node in imports for one in node.names)
