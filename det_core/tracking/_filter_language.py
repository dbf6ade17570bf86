"""Language in which users select experiments and trials, such as ``lr < 0.01 and accuracy > 0.9``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from det_core.errors import FilterError

LONGEST_FILTER = 1000
"""Maximum number of characters of a filter."""
MOST_COMPARISONS = 20
"""Maximum number of comparisons in a filter."""
_DEEPEST = 20
"""Maximum nesting of parentheses and ``not``."""
_EXAMPLE = "lr < 0.01 and accuracy > 0.9"
OPERATORS = ("<=", ">=", "!=", "=", "<", ">", "~")
"""Operators of comparisons. ``~`` stands for: contains, ignoring case."""
_KEYWORDS = ("and", "or", "not")
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<operator><=|>=|!=|==?|<|>|~)
      | (?P<bracket>[()])
      | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w./@-]))
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | `(?P<quoted>[^`]+)`
      | (?P<word>[\w./@-]+)
      | (?P<end>$)
      | (?P<unknown>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True)
class Comparison:
    """A value of a record, compared with a constant.

    Args:
        name: name of the value.
        operator: one of `OPERATORS`.
        constant: text that it is compared with.
        number: the same as a number, or None if it is none.
        position: position of the constant in the filter, from 1.
    """

    name: str
    operator: str
    constant: str
    number: float | None
    position: int


@dataclass(frozen=True)
class Not:
    """The opposite of a condition."""

    part: Condition


@dataclass(frozen=True)
class Every:
    """Conditions that all hold."""

    parts: Sequence[Condition]


@dataclass(frozen=True)
class Some:
    """Conditions of which at least one holds."""

    parts: Sequence[Condition]


Condition = Comparison | Not | Every | Some


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def parse_filter(text: str) -> Condition:
    """Return the condition that a filter states.

    Raises:
        FilterError: the filter is malformed, or too long, too deep or has too many comparisons.
    """
    if len(text) > LONGEST_FILTER:
        raise FilterError(f"the filter has {len(text)} characters; expected at most {LONGEST_FILTER}")
    return _Parser(text).parse()


def refuse(position: int, found: str, expected: str) -> NoReturn:
    """Raise FilterError about a part of a filter.

    Args:
        position: position of the part, from 1.
        found: the part.
        expected: what would have been right.
    """
    what = repr(found) if found else "the end"
    raise FilterError(
        f"the filter is wrong at position {position}, {what:.100}: expected {expected}; such as {_EXAMPLE}"
    )


class _Parser:
    """Recursive descent, in which ``or`` binds weakest and ``not`` strongest."""

    def __init__(self, text: str) -> None:
        self._tokens = _split(text)
        self._next = next(self._tokens)
        self._comparisons = 0

    def parse(self) -> Condition:
        condition = self._some(0)
        if self._next.kind != "end":
            self._refuse("and, or, or the end")
        return condition

    def _some(self, depth: int) -> Condition:
        parts = [self._every(depth)]
        while self._takes("or"):
            parts.append(self._every(depth))
        return parts[0] if len(parts) == 1 else Some(parts)

    def _every(self, depth: int) -> Condition:
        parts = [self._single(depth)]
        while self._takes("and"):
            parts.append(self._single(depth))
        return parts[0] if len(parts) == 1 else Every(parts)

    def _single(self, depth: int) -> Condition:
        if depth > _DEEPEST:
            self._refuse(f"at most {_DEEPEST} levels of parentheses and not")
        if self._takes("not"):
            return Not(self._single(depth + 1))
        if self._next.text == "(" and self._next.kind == "bracket":
            self._advance()
            condition = self._some(depth + 1)
            if self._next.text != ")" or self._next.kind != "bracket":
                self._refuse("and, or, or )")
            self._advance()
            return condition
        return self._comparison()

    def _comparison(self) -> Comparison:
        self._comparisons += 1
        if self._comparisons > MOST_COMPARISONS:
            self._refuse(f"at most {MOST_COMPARISONS} comparisons")
        if self._is_keyword() or self._next.kind not in ("word", "quoted"):
            self._refuse("a name, such as a hyperparameter")
        name = self._advance().text
        if self._next.kind != "operator":
            self._refuse(f"one of {' '.join(OPERATORS)}")
        operator = self._advance().text
        if self._is_keyword() or self._next.kind not in ("number", "text", "word"):
            self._refuse("a number, a word or a text in quotes")
        kind, text, position = self._advance()
        if kind == "text":
            text = _ESCAPED.sub(r"\1", text[1:-1])
        number = float(text) if kind == "number" else None
        return Comparison(name, operator.replace("==", "="), text, number, position)

    def _is_keyword(self) -> bool:
        return self._next.kind == "word" and self._next.text.lower() in _KEYWORDS

    def _takes(self, keyword: str) -> bool:
        found = self._next.kind == "word" and self._next.text.lower() == keyword
        if found:
            self._advance()
        return found

    def _advance(self) -> _Token:
        token, self._next = self._next, next(self._tokens)
        return token

    def _refuse(self, expected: str) -> NoReturn:
        refuse(self._next.position, self._next.text, expected)


def _split(text: str) -> Iterator[_Token]:
    """Yield the tokens of a filter, of which the last one is the end."""
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or ""
        yield _Token(kind, found[kind], found.start(kind) + 1)
        if kind == "end":
            return
