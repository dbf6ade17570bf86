"""Check that no modules import each other in a cycle: ``cycles.py PACKAGE ...``.

Imports in functions and for type checkers count, because a reader has to follow them, too. Imports of submodules by
their packages do not matter unless a submodule imports its package. Each cycle is printed as ``a -> b -> a``. The exit
code is 1 if there is one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path


def read_modules(packages: Sequence[str]) -> dict[str, Path]:
    """Return the files of all modules in the directories of some packages, by module name."""
    modules = {}
    for package in map(Path, packages):
        for file in sorted(package.rglob("*.py")):
            parts = file.relative_to(package.parent).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return modules


def imported_names(module: str, file: Path) -> Iterator[str]:
    """Yield the full name of each module, class, function or constant that the module imports."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{source}.{alias.name}" for alias in node.names)


def import_graph(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Return for each module the other modules among them that it imports."""
    graph = {}
    for module, file in modules.items():
        names = imported_names(module, file)
        graph[module] = {name if name in modules else name.rpartition(".")[0] for name in names} & modules.keys()
    return graph


def find_cycles(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yield cycles, each of which begins and ends with the same module, until all are open. Edges are removed."""
    while True:
        try:
            TopologicalSorter(graph).prepare()
            return
        except CycleError as error:
            cycle = error.args[1][::-1]
            yield cycle
            graph[cycle[0]].remove(cycle[1])


def main(packages: Sequence[str]) -> int:
    """Check the packages and return the exit code."""
    modules = read_modules(packages)
    cycles = list(find_cycles(import_graph(modules)))
    for cycle in cycles:
        print(" -> ".join(cycle))
    print(f"{len(modules)} modules: {len(cycles)} cycles")
    return int(bool(cycles))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
