"""Small changes of source code, and their application to files."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEGATED = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: ">=", ast.GtE: "<", ast.Gt: "<=", ast.LtE: ">",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
BOUNDARIES = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}


@dataclass(frozen=True)
class Mutant:
    """A replacement of a part of a file.

    Attributes:
        kind: the kind of mutation, such as ``boundary``.
        path: the file, relative to the root of the repository.
        first: the number of the first line of the statement, from 1.
        last: the number of the last line of the statement, without its body. Tests that run one of these lines may
            notice the mutant.
        in_function: whether the statement is in a function. All others run when the module is imported.
        begin: the offset of the replaced text in the file, in bytes.
        before: the replaced text.
        after: the new text.
    """

    kind: str
    path: str
    first: int
    last: int
    in_function: bool
    begin: int
    before: str
    after: str

    @property
    def key(self) -> str:
        """Return a name that stays the same as long as the text of the mutant does."""
        return f"{self.path}:{self.first}:{self.kind}:{self.begin}"

    def apply(self, tree: Path) -> bytes:
        """Replace the text in the file below ``tree`` and return the file's earlier contents.

        Raises:
            ValueError: the file has other text at that place.
        """
        file = tree / self.path
        source, before = file.read_bytes(), self.before.encode()
        end = self.begin + len(before)
        if source[self.begin : end] != before:
            raise ValueError(
                f"{self.path} has changed since the sample was made: expected {self.before!r} at byte {self.begin}; "
                f"update the sample with: python tools/mutants locate"
            )
        file.write_bytes(source[: self.begin] + self.after.encode() + source[end:])
        return source


class _Finder:
    """Collector of the mutants of a file."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path, self._source = path, source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def find(self) -> Iterator[Mutant]:
        yield from self._block(ast.parse(self._source).body, in_function=False)

    def _block(self, statements: Sequence[ast.stmt], *, in_function: bool) -> Iterator[Mutant]:
        for statement in statements:
            if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
                continue
            is_function = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
            bodies = [
                getattr(part, name)
                for part in [statement, *getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
                for name in ("body", "orelse", "finalbody")
                if getattr(part, name, None)
            ]
            if not (is_function or isinstance(statement, ast.ClassDef)):
                last = bodies[0][0].lineno - 1 if bodies else statement.end_lineno or statement.lineno
                lines = (statement.lineno, max(last, statement.lineno))
                for kind, node, after in _replacements(statement):
                    begin = self._offset(node.lineno, node.col_offset)
                    before = self._source[begin : self._offset(node.end_lineno, node.end_col_offset)].decode()
                    if (new := after(before)) != before:
                        yield Mutant(kind, self._path, *lines, in_function, begin, before, new)
            for body in bodies:
                yield from self._block(body, in_function=in_function or is_function)

    def _offset(self, line: int, column: int) -> int:
        return self._lines[line - 1] + column


def _replacements(statement: ast.stmt) -> Iterator[tuple[str, Any, Any]]:
    """Yield the kind, the replaced node and a function that returns the new text for the old one."""
    match statement:
        case ast.Raise():
            yield "raise", statement, lambda text: "pass"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement", statement, lambda text: "pass"
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return
        case ast.If(test=test) | ast.While(test=test):
            yield "boolean", test, lambda text: f"not ({text})"
    for node in _expressions(statement):
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                for kind, table in (("comparison", NEGATED), ("boundary", BOUNDARIES)):
                    if new := table.get(type(operator)):
                        yield kind, node, _joined(left, new, right)
            case ast.BoolOp(op=operator, values=values):
                new = "or" if isinstance(operator, ast.And) else "and"
                yield "boolean", node, _constantly(f" {new} ".join(f"({ast.unparse(value)})" for value in values))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield "boolean", node, _constantly(f"bool({ast.unparse(operand)})")
            case ast.Constant(value=bool() as value):
                yield "boolean", node, _constantly(repr(not value))
            case ast.Constant(value=int() | float() as value):
                yield "constant", node, _constantly(repr(value + 1))
            case ast.Constant(value=str() as value) if value and not (set(value) & set(" \n{}%")):
                yield "constant", node, _constantly(repr(value + "X"))
            case ast.Call(args=[first, second, *rest]) if ast.dump(first) != ast.dump(second) and not (
                isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
            ):
                swapped = ast.Call(node.func, [second, first, *rest], node.keywords)
                yield "argument", node, _constantly(ast.unparse(swapped))


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement without those of its body, of annotations and of formatted strings."""
    waiting = [
        value
        for name, value in ast.iter_fields(statement)
        if name not in ("body", "orelse", "finalbody", "handlers", "cases", "annotation", "returns", "args", "targets")
    ]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, ast.AST) and not isinstance(node, ast.JoinedStr | ast.stmt):
            if isinstance(node, ast.expr):
                yield node
            waiting.extend(value for _, value in ast.iter_fields(node))


def _joined(left: ast.expr, operator: str, right: ast.expr) -> Any:
    return _constantly(f"{_operand(left)} {operator} {_operand(right)}")


def _operand(node: ast.expr) -> str:
    text = ast.unparse(node)
    return f"({text})" if isinstance(node, ast.BoolOp | ast.Compare | ast.IfExp | ast.Lambda | ast.NamedExpr) else text


def _constantly(text: str) -> Any:
    return lambda before: text


def find_mutants(root: Path, packages: Iterable[str], without: Iterable[str]) -> list[Mutant]:
    """Return all mutants of the modules below some directories."""
    files = sorted(file for package in packages for file in (root / package).rglob("*.py"))
    paths = [str(file.relative_to(root)) for file in files]
    return [
        mutant
        for file, path in zip(files, paths, strict=True)
        if not path.startswith(tuple(without))
        for mutant in _Finder(path, file.read_bytes()).find()
    ]


def draw_sample(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Draw mutants so that each kind is drawn equally often. At most one comes from a statement."""
    by_kind = defaultdict(list)
    for mutant in mutants:
        by_kind[mutant.kind].append(mutant)
    choose = random.Random(seed)  # noqa: S311
    for group in by_kind.values():
        choose.shuffle(group)
    drawn: dict[tuple[str, int], Mutant] = {}
    while len(drawn) < count and any(by_kind.values()):
        for kind in sorted(by_kind):
            if by_kind[kind] and len(drawn) < count:
                mutant = by_kind[kind].pop()
                drawn.setdefault((mutant.path, mutant.first), mutant)
    return sorted(drawn.values(), key=lambda mutant: (mutant.path, mutant.begin))


def locate_again(mutant: Mutant, candidates: Sequence[Mutant]) -> Mutant | None:
    """Return the mutant of the same text that is nearest to where it was, or ``None`` if its text is gone."""

    def content(mutant: Mutant) -> tuple[str, ...]:
        return mutant.path, mutant.kind, mutant.before, mutant.after

    same = [candidate for candidate in candidates if content(candidate) == content(mutant)]
    return min(same, key=lambda candidate: abs(candidate.begin - mutant.begin), default=None)
