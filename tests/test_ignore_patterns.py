"""Patterns as in ``.gitignore``: the same matches as those of pathspec, in a short time whatever the pattern is."""

from __future__ import annotations

import random
import time

import pytest
from pathspec import GitIgnoreSpec

from det_core.errors import DetError
from det_core.ignore_patterns import MAX_PATTERNS, pattern_matcher

_PARTS = ("a", "b", "/", "*", "**", "?", "/**/", "[ab]", "!", "\\*", "{", ".", "^", "$")


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 20 + "*b", "a" * 255),
        ("*" * 4000 + "b", "a" * 255),
        ("?*" * 100 + "b", "a" * 255),
        ("*[a-z]" * 300 + "1", "a" * 1024),
        ("**/a/" * 200 + "b", "a/" * 2000),
        ("**/*a*a*a*b/" * 30 + "c", ("a" * 255 + "/") * 15),
        ("/x/**/*a*a/**/*a*a/**/*a*b", "x/" + ("a" * 255 + "/") * 15),
    ],
)
def test_no_pattern_takes_long(pattern: str, path: str) -> None:
    begin = time.process_time()
    assert not pattern_matcher([pattern])(path)
    assert time.process_time() - begin < 20


@pytest.mark.integration
def test_patterns_match_as_those_of_pathspec() -> None:
    chosen, matches = random.Random(1), 0
    for _ in range(1000):
        lines = ["".join(chosen.choices(_PARTS, k=chosen.randint(1, 9))) for _ in range(2)]
        try:
            expected = GitIgnoreSpec.from_lines(lines).match_file
        except ValueError:
            with pytest.raises(DetError, match="malformed"):
                pattern_matcher(lines)
            continue
        found = pattern_matcher(lines)
        for _ in range(10):
            names = ("".join(chosen.choices("aab.*", k=chosen.randint(1, 4))) for _ in range(chosen.randint(1, 4)))
            path = "/".join(names) + chosen.choice(("", "/"))
            assert found(path) is expected(path), (lines, path)
            matches += found(path)
    assert matches > 300


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a"] * (MAX_PATTERNS + 1), "1001 patterns"),
        (["a" * 5000], "5000 characters"),
        (["!"], "malformed"),
        (["[z-a]"], "malformed"),
    ],
)
def test_patterns_that_cannot_be_used_are_refused(lines: list[str], message: str) -> None:
    with pytest.raises(DetError, match=message):
        pattern_matcher(lines)


def test_comments_and_empty_lines_do_not_count() -> None:
    assert pattern_matcher([*["", "# comment", "  "] * MAX_PATTERNS, "a"])("a")
