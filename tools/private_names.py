"""Check that no distribution uses private names of another one: ``private_names.py [DIRECTORY]``.

The directory is the root of the repository, by default the current one. A name is private if it, or a module on the way
to it, begins with one underscore. Each use of a private name is printed as ``file:line: name``, and the exit code is 1:

- an import of it, an attribute of an imported module or class, and a string with its dotted name;
- an attribute of any object, if a class of an imported distribution defines the name and the user's own does not.

Tests may use the private names of the distribution that they test, and no others.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

EXCEPTIONS = {
    **dict.fromkeys(
        [(f"plugins/{name}/tests/old/make.py", "determined.") for name in ("estimator", "keras", "torch")],
        "runs with releases of the original, whose package has the same name",
    ),
    ("plugins/compat/tests/test_names.py", "det.core._distributed"): "an old name that det-compat provides",
    ("plugins/estimator/det_estimator/_control_hook.py", "run_context._stop_requested"): "a name of TensorFlow",
    ("plugins/keras/det_keras/_old_checkpoints.py", "status._checkpoint"): "a name of TensorFlow",
    ("plugins/server/tests/test_pages.py", "det_core.tracking._column_types"): "writes names as earlier releases did",
    ("plugins/testing/tests/broken_stores.py", "self._base"): "breaks det-core's store in a directory from within",
    ("plugins/testing/tests/test_framework.py", "det_core.tracking._sqlite"): "waits less for a sync",
    ("plugins/testing/tests/test_launcher.py", "_experiment_runner"): "launches experiments in this process",
    ("plugins/torch/det_torch/_compiled.py", "._modules"): "a name of torch",
    ("plugins/torch/tests/test_tensorboard.py", "train._tensorboard"): "saves a second process",
    ("benchmarks/checkpoint_stall.py", "det_torch._checkpoints."): "measures staging and writing without a trial",
    ("benchmarks/first_call.py", "det_torch._mkl"): "measures this module",
    ("benchmarks/remote_store.py", "_worker_connections."): "measures this module",
    ("benchmarks/large_payloads.py", "det_core.comm._"): "measures collectives without the part under test",
    ("benchmarks/listings.py", "det_core.tracking._schema."): "writes a million rows with SQL, and times bare SQL",
    ("benchmarks/listings.py", "store._database"): "writes a million rows with SQL, and times bare SQL",
    ("benchmarks/runner.py", "det_core.runner._"): "measures the runner without the processes that it starts",
}
"""File and part of a private name that it may use -> reason. An exception without use is an error."""

_DOTTED = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+")
_NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}
"""Public names in spite of their underscore."""


@dataclass(frozen=True)
class Distribution:
    """Files whose private names are common property."""

    packages: frozenset[str]
    """Importable packages."""
    files: tuple[Path, ...]
    """Files of the packages and of their tests."""

    @cached_property
    def nodes(self) -> dict[Path, list[ast.AST]]:
        """Return the nodes of the syntax tree of each file."""
        return {file: list(ast.walk(ast.parse(file.read_text(encoding="utf-8")))) for file in self.files}

    @cached_property
    def names(self) -> dict[Path, list[tuple[int, str]]]:
        """Return the line numbers and dotted names that each file refers to."""
        return {file: list(_names(nodes)) for file, nodes in self.nodes.items()}

    @cached_property
    def imports(self) -> set[str]:
        """Return the top-level packages of all names."""
        return {name.partition(".")[0] for names in self.names.values() for _, name in names}

    @cached_property
    def attributes(self) -> set[str]:
        """Return the names that classes define, in their bodies or on ``self`` and ``cls``."""
        return {name for node in self._every(ast.ClassDef, ast.Attribute) for name in _definitions(node)}

    @cached_property
    def globals(self) -> set[str]:
        """Return the names that modules define."""
        return {name for node in self._every(ast.Module) for name in _definitions(node)}

    def _every(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        return (node for nodes in self.nodes.values() for node in nodes if isinstance(node, kinds))


def find_distributions(root: Path) -> list[Distribution]:
    """Return the distributions of a repository. Directories without a package form one without private names."""
    groups = [[root / "det_core", root / "tests"], *([path] for path in sorted((root / "plugins").glob("*")))]
    groups += [[root / name] for name in ("benchmarks", "examples")]
    return [_distribution(group) for group in groups]


def private_uses(distribution: Distribution, others: Sequence[Distribution]) -> Iterator[tuple[Path, int, str]]:
    """Yield the file, line number and name of every use of a private name of other distributions."""
    foreign = {package for other in others for package in other.packages}
    imported = [other for other in others if other.packages & distribution.imports]
    defined: set[str] = set().union(*(filter(_is_private, other.attributes) for other in imported))
    defined -= distribution.attributes | distribution.globals | _NAMED_TUPLE
    for file, nodes in distribution.nodes.items():
        found = {
            (line, name)
            for line, name in distribution.names[file]
            if name.partition(".")[0] in foreign and _is_private(name)
        }
        lines = {line for line, _ in found}
        found |= {
            (node.lineno, ast.unparse(node))
            for node in nodes
            if isinstance(node, ast.Attribute) and node.attr in defined and node.lineno not in lines
        }
        yield from ((file, line, name) for line, name in sorted(found))


def main(arguments: Sequence[str]) -> int:
    """Check the repository and return the exit code."""
    root = Path(*arguments)
    distributions = find_distributions(root)
    used, refused = set(), []
    for one in distributions:
        for file, line, name in private_uses(one, [other for other in distributions if other is not one]):
            place = file.relative_to(root).as_posix()
            excepted = {key for key in EXCEPTIONS if key[0] == place and key[1] in name}
            used |= excepted
            if not excepted:
                refused.append(f"{place}:{line}: {name} is private to another distribution; use a public name")
    refused += [f"{place}: {name} is not used; remove it from EXCEPTIONS" for place, name in EXCEPTIONS.keys() - used]
    print("\n".join([*refused, f"{len(refused)} problems with private names"]))
    return int(bool(refused))


def _distribution(directories: Sequence[Path]) -> Distribution:
    files = tuple(sorted(file for directory in directories for file in directory.rglob("*.py")))
    inits = {file.parent for file in files if file.name == "__init__.py"}
    return Distribution(frozenset(path.name for path in inits if path.parent not in inits), files)


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in re.split("[.:]", name))


def _names(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the line numbers and dotted names of imports, of private attributes of imported names, and in strings."""
    imported: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.lineno, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                imported[alias.asname or top] = alias.name if alias.asname else top
                yield node.lineno, alias.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
            yield node.lineno, node.value
    for node in nodes:
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            first, _, rest = ast.unparse(node).partition(".")
            if first in imported:
                yield node.lineno, f"{imported[first]}.{rest}"


def _definitions(node: ast.AST) -> Iterator[str]:
    """Yield the names that a class or module defines in its body, or an assignment to an attribute of ``self``."""
    if isinstance(node, ast.Attribute):
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            yield node.attr
        return
    for statement in getattr(node, "body", []):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
