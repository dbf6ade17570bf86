"""Check that text is read and written as UTF-8, not in the encoding of the locale: ``text_encodings.py DIRECTORY ...``.

Calls that open a file, a pipe or a process as text must have an ``encoding``. Each other call is printed as
``file:line: call``. The exit code is 1 if there is one. Ruff's rule PLW1514 misses all paths in variables.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_TEXT = {"read_text": 0, "write_text": 1}
"""Methods of paths that are about text, with the number of arguments before the encoding."""
_MODES = {"open": 0, "fdopen": 1, "NamedTemporaryFile": 0, "TemporaryFile": 0, "SpooledTemporaryFile": 1}
"""Functions and methods that open a file, with the position of the mode. The function `open` has a path before it."""
_BINARY_BY_DEFAULT = {"NamedTemporaryFile", "TemporaryFile", "SpooledTemporaryFile"}
_PROCESSES = {"Popen", "call", "check_call", "check_output", "run"}


def is_unspecified(call: ast.Call) -> bool:
    """Return whether a call opens something as text, in the encoding of the locale."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if "encoding" in given or None in given:
        return False
    if name in _TEXT:
        return isinstance(function, ast.Attribute) and len(call.args) <= _TEXT[name]
    if name in _PROCESSES:
        return any(_is_true(given.get(key)) for key in ("text", "universal_newlines"))
    if name in _MODES:
        place = _MODES[name] + isinstance(function, ast.Name) * (name == "open")
        mode = call.args[place] if len(call.args) > place else given.get("mode")
        if mode is None:
            return name not in _BINARY_BY_DEFAULT and len(call.args) <= place
        return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and _is_text(mode.value)
    return False


def _is_true(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def _is_text(mode: str) -> bool:
    return not {*mode} - {*"rwaxt+"}


def _unused_value(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.Expr):
        return node.value
    return node.body if isinstance(node, ast.Lambda) else None


def _is_bare_open(value: ast.expr | None) -> bool:
    """Return whether an expression is ``x.open()``. If the result is not used, ``x`` is no path."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "open"


def find_calls(file: Path) -> Iterator[str]:
    """Yield a line about each call in a file that has no encoding."""
    nodes = [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    opens_no_file = set(filter(_is_bare_open, map(_unused_value, nodes)))
    for node in nodes:
        if isinstance(node, ast.Call) and node not in opens_no_file and is_unspecified(node):
            yield f'{file}:{node.lineno}: {ast.unparse(node.func)}() has no encoding; add encoding="utf-8"'


def main(directories: Sequence[str]) -> int:
    """Print the calls without an encoding, and return the exit code."""
    files = [file for directory in directories for file in sorted(Path(directory).rglob("*.py"))]
    found = [line for file in files for line in find_calls(file)]
    for line in found:
        print(line)
    print(f"{len(files)} files: {len(found)} calls without an encoding")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
