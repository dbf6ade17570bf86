"""Check the first sentences of docstrings: ``prose.py PATH ...``.

Two kinds of summaries make readers guess:

riddle   opens with What, Where, Who, How, Why, Which or That, or with a word that refers to nothing, such as Its
clause   joins two thoughts with a semicolon or a colon

Each is printed as ``file:line: summary``. The exit code is 1 if their shares exceed `LIMITS`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

LIMITS = {"riddle": 2.0, "clause": 4.0}
"""Highest share of summaries, in percent."""

_KINDS = {
    "riddle": re.compile(
        r"(What|Where|Who|Whom|Whose|How|Why|Which|That|Its|Their|They|Those|These|Of|By|As|Also|Like|So)\b"
    ),
    "clause": re.compile(r".*(;|: [a-z])"),
}
_SPACE = re.compile(r"\s+")
_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s")


def summaries(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number and the first sentence of every docstring, those of attributes included."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for before, statement in zip([None, *body], body, strict=False):
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                continue
            text = statement.value.value
            if isinstance(text, str) and (before is None or isinstance(before, ast.AnnAssign | ast.Assign)):
                paragraph = text.strip().split("\n\n")[0]
                yield statement.lineno, _END_OF_SENTENCE.split(_SPACE.sub(" ", paragraph))[0]


def main(paths: Sequence[str]) -> int:
    """Check all files below the paths and return the exit code."""
    files = sorted(chain.from_iterable(Path(path).rglob("*.py") for path in paths))
    total, found = 0, Counter[str]()
    for file in files:
        for line, summary in summaries(file):
            kinds = [kind for kind, pattern in _KINDS.items() if pattern.match(summary)]
            total += 1
            found.update(kinds)
            if kinds:
                print(f"{file}:{line}: {', '.join(kinds)}: {summary}")
    shares = {kind: 100 * found[kind] / max(total, 1) for kind in _KINDS}
    measured = ", ".join(f"{share:.1f} % {kind} (at most {LIMITS[kind]:g})" for kind, share in shares.items())
    print(f"{total} summaries: {measured}")
    return int(any(shares[kind] > limit for kind, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
