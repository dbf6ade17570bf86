"""Dotted names that Python code uses, by their place after all imports are resolved."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class UsedName(NamedTuple):
    """Name such as ``determined.pytorch.DataLoader``.

    Attributes:
        path: dotted path.
        line: line number from 1.
        call: call of the name, or None if it is used in another way.
    """

    path: str
    line: int
    call: ast.Call | None = None


def find_used_names(tree: ast.Module) -> Iterator[UsedName]:
    """Yield the names of other modules that the code imports, reads or calls. Relative imports are left out.

    Args:
        tree: the code.
    """
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                yield UsedName(one.name, node.lineno)
                package = one.name.partition(".")[0]
                aliases[one.asname or package] = one.name if one.asname else package
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                path = node.module if one.name == "*" else f"{node.module}.{one.name}"
                yield UsedName(path, node.lineno)
                aliases[one.asname or one.name] = path
    yield from _uses(tree, aliases, None)


def _uses(node: ast.AST, aliases: dict[str, str], call: ast.Call | None) -> Iterator[UsedName]:
    """Yield the uses of imported names in a node.

    Args:
        node: the node.
        aliases: imported names -> their paths.
        call: the call whose function the node is.
    """
    if isinstance(node, _FUNCTIONS):
        aliases = {name: path for name, path in aliases.items() if name not in _parameters(node)}
    if isinstance(node, (ast.Attribute, ast.Name)):
        path = _path(node, aliases)
        if path is not None:
            yield UsedName(path, node.lineno, call)
            return
    for child in ast.iter_child_nodes(node):
        called = node if isinstance(node, ast.Call) and child is node.func else None
        yield from _uses(child, aliases, called)


def _path(node: ast.expr, aliases: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if isinstance(node, ast.Attribute) and (before := _path(node.value, aliases)):
        return f"{before}.{node.attr}"
    return None


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    """Return the names of a function's parameters, which hide imports of the same name."""
    given = function.args
    single = [one for one in (given.vararg, given.kwarg) if one]
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *single)}
