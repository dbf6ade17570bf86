"""Check that docstrings mention only names that exist: ``docstring_names.py DIRECTORY ...``.

These mentions must be true, with regard to all files in the directories:

- A name in single backticks is that of a parameter, an attribute, a module, or of something that a module defines. A
  dotted name is that of a member.
- Each word of a name, a command such as ``det run`` or an option in double backticks is in the code or in `ELSEWHERE`.
- An exception under ``Raises:`` exists.

Each other mention is printed as ``file:line: name``. The exit code is 1 if there is one.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ELSEWHERE = {
    "cudaHostRegisterPortable": "CUDA",
    "horovodrun": "Horovod",
    "INVALID_PARAMETER_VALUE": "MLflow",
    "Model.save_weights": "Keras",
    "TensorServingInputReceiver": "TensorFlow",
    "ServingInputReceiver": "TensorFlow",
    "patience": "Keras",
    "set_model": "Keras",
    "set_params": "Keras",
    "use_attribute_docstrings": "pydantic",
    "nohup": "the shell",
    "nvidia0": "NVIDIA's driver",
    "slurmstepd": "Slurm",
    "STATE_": "prefix of states in the wire format",
    "__getitems__": "torch",
    "_metadata": "torch",
    "StatefulDataLoader": "torchdata",
    "--rdzv-conf": "torchrun",
    "--shutdown-timeout": "torchrun",
    "--tee": "torchrun",
    "google.cloud.storage.Blob": "Google's client",
    "model_1.safetensors": "example of a file",
    "model_1": "example of a file",
    "top5_acc": "example of a metric",
    "valAcc": "example of a metric",
    "val_accuracy": "example of a metric",
}
"""Names in double backticks that the code does not contain -> whose they are. A name without use is an error."""

_SINGLE = re.compile(r"(?<![`\w])`([^`\s]+)`(?![`_])")
_DOUBLE = re.compile(r"``([^`]+)``")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_COMMAND = re.compile(r"det( [a-z][a-z-]*)+")
_OPTION = re.compile(r"--[a-z][a-z-]*")
_RAISED = re.compile(r"^ *Raises:\n((?:^ {4,}.*\n?)+)", re.MULTILINE)
_ENTRY = re.compile(r"^ *((?:[A-Za-z_][\w.]*(?:, )?)+):", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_][\w-]*")
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_STANDARD = {*dir(builtins), *sys.stdlib_module_names}
_WITHOUT_MEMBERS = {"ABC", "Generic", "Protocol"}


class Code:
    """Names in all files below some directories, each of which is a package."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self.files: dict[Path, ast.Module] = {}
        self.modules: dict[str, set[str]] = {}
        """Names that each module defines or imports."""
        self.members: dict[str, set[str]] = defaultdict(set)
        """Attributes of the classes of each name, without inherited ones."""
        self.bases: dict[str, set[str]] = defaultdict(set)
        """Bases of the classes of each name."""
        self.words: set[str] = set()
        """Words of the code, those of its strings included."""
        for directory in directories:
            for file in sorted(directory.rglob("*.py")):
                self._add(file, file.relative_to(directory.parent).with_suffix("").parts)

    def _add(self, file: Path, parts: tuple[str, ...]) -> None:
        tree = self.files[file] = ast.parse(file.read_text(encoding="utf-8"))
        self.modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = {*_defined(tree)}
        texts = {id(node) for node, _ in docstrings(tree)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self.members[node.name] |= {*_defined(node), *_assigned_to_self(node)}
                self.bases[node.name] |= {_last_name(base) for base in node.bases}
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
                self.words |= {*_WORD.findall(node.value), *_OPTION.findall(node.value)}
            self.words |= {*_identifiers(node)}

    def has_member(self, owner: str, name: str) -> bool:
        """Return whether a class has an attribute. A class with a base from elsewhere may have any."""
        family = _closure({owner}, self.bases)
        return any(one not in self.members or name in self.members[one] for one in family - _WITHOUT_MEMBERS)

    def resolves(self, name: str, owners: Sequence[ast.AST]) -> bool:
        """Return whether a docstring in a module, classes and functions can mean something by a name."""
        if any(f".{module}".endswith(f".{name}") for module in self.modules):
            return True
        before, _, last = name.rpartition(".")
        if not before:
            classes = [owner.name for owner in owners if isinstance(owner, ast.ClassDef)]
            return (
                name in _STANDARD
                or any(name in _defined(owner) for owner in owners)
                or any(self.has_member(owner, name) for owner in classes)
                or any(name in names for names in self.modules.values())
            )
        homes = [names for module, names in self.modules.items() if f".{module}".endswith(f".{before}")]
        owner = before.rpartition(".")[2]
        if homes or owner in self.members:
            return any(last in names for names in homes) or (owner in self.members and self.has_member(owner, last))
        return self.resolves(before.partition(".")[0], owners)


def docstrings(tree: ast.AST, owners: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.Constant, tuple[ast.AST, ...]]]:
    """Yield all docstrings, those of attributes included, each with the module, classes and functions around it."""
    if isinstance(tree, ast.Module | ast.ClassDef | _FUNCTION):
        owners = (*owners, tree)
        for before, statement in zip([None, *tree.body], tree.body, strict=False):
            value = getattr(statement, "value", None)
            begins = isinstance(statement, ast.Expr) and isinstance(before, ast.AnnAssign | ast.Assign | None)
            if begins and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value, owners
    for node in ast.iter_child_nodes(tree):
        yield from docstrings(node, owners)


def unknown_names(code: Code, text: str, owners: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the position and the text of each untrue mention in a docstring."""
    for match in _SINGLE.finditer(text):
        name = match[1].removesuffix("()")
        if _NAME.fullmatch(name) and not code.resolves(name, owners):
            yield match.start(), name
    for match in _DOUBLE.finditer(text):
        name = match[1].removesuffix("()")
        checked = any(form.fullmatch(name) for form in (_NAME, _COMMAND, _OPTION))
        if checked and not code.words.issuperset(re.split("[. ]", name)):
            yield match.start(), name
    for section in _RAISED.finditer(text):
        for entry in _ENTRY.finditer(section[1]):
            for name in entry[1].split(", "):
                if not code.resolves(name, owners):
                    yield section.start(1) + entry.start(), name


def _closure(names: set[str], following: Mapping[str, set[str]]) -> set[str]:
    found, new = set(names), set(names)
    while new := set[str]().union(*(following.get(name, set()) for name in new)) - found:
        found |= new
    return found


def _own_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, _FUNCTION | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


def _defined(owner: ast.AST) -> Iterator[str]:
    """Yield the parameters of a function, or the names that the body of a module or class defines or imports."""
    if isinstance(owner, _FUNCTION):
        yield from (node.arg for node in ast.walk(owner.args) if isinstance(node, ast.arg))
        return
    for node in _statements(owner):
        yield from _own_names(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
            yield (getattr(node, "module", None) or "").partition(".")[0]


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements in a module or class, without those of its functions and classes."""
    for statement in ast.iter_child_nodes(node):
        if isinstance(statement, ast.stmt):
            yield statement
        if not isinstance(statement, ast.ClassDef | _FUNCTION):
            yield from _statements(statement)


def _assigned_to_self(owner: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(owner):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, _FUNCTION) and node.name == "__init__":
            yield from _defined(node)


def _identifiers(node: ast.AST) -> Iterator[str]:
    yield from (
        value for _, value in ast.iter_fields(node) if isinstance(value, str) and not isinstance(node, ast.Constant)
    )
    if isinstance(node, ast.alias):
        yield from node.name.split(".")
    elif isinstance(node, ast.ImportFrom):
        yield from (node.module or "").split(".")


def _last_name(expression: ast.expr) -> str:
    expression = expression.value if isinstance(expression, ast.Subscript) else expression
    return expression.attr if isinstance(expression, ast.Attribute) else getattr(expression, "id", "")


def main(directories: Sequence[str]) -> int:
    """Check all files below the directories and return the exit code."""
    code = Code([Path(directory) for directory in directories])
    refused, used = [], set[str]()
    for file, tree in code.files.items():
        for node, owners in docstrings(tree):
            text = str(node.value)
            for position, name in unknown_names(code, text, owners):
                used.add(name)
                if name not in ELSEWHERE:
                    line = node.lineno + text.count("\n", 0, position)
                    refused.append(f"{file}:{line}: {name} does not exist")
    refused += [f"{name} is not used; remove it from ELSEWHERE" for name in sorted(ELSEWHERE.keys() - used)]
    print("\n".join([*refused, f"{len(refused)} problems with names in docstrings"]))
    return int(bool(refused))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
