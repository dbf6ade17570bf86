"""Patterns as in ``.gitignore``, which users write and servers match.

The expressions of pathspec try all ways to divide a path among the wildcards of a pattern. Those of ``*a*a*a*a*b`` take
years, in which no other thread of the process runs. Here, all wildcards but the last ones match as little as they can.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from det_core.errors import DetError

if TYPE_CHECKING:
    from pathspec.pattern import RegexPattern

MAX_PATTERNS = 1000
"""Maximum number of patterns, each of which may be tried for each file."""
_MAX_LENGTH = 4096
"""Maximum number of characters of a pattern, which is also that of a path."""

# Users cannot write these parts of pathspec's expressions, which translate each text between slashes by itself.
_STAR = r"\[\^/\]\*"
_STARS = re.compile(rf"(?:{_STAR})+")
_STAR_BEFORE_ANOTHER = re.compile(rf"{_STAR}((?:\[\^/\](?!\*)|(?!\[\^/\])[^/])+)(?={_STAR})")
_SHORTEST = {"(?:.+/)?": "(?:.+?/)??", "(?:/.+)?": "(?:/.+?)??"}
"""Expressions of ``**`` mapped to those that prefer the shortest match."""
_ANY = "|".join(map(re.escape, _SHORTEST))
_DIRECTORIES_BEFORE_OTHERS = re.compile(rf"({_ANY})((?:(?!{_ANY}).)+)(?={_ANY})", re.DOTALL)


def pattern_matcher(lines: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that tests whether a relative path matches the lines of a ``.gitignore``.

    Raises:
        DetError: there are more than `MAX_PATTERNS` patterns, or one is too long or malformed.
    """
    from pathspec import GitIgnoreSpec  # the import takes 12 ms, and most workers do not need it

    patterns = [line for line in lines if line.strip() and not line.startswith("#")]
    if len(patterns) > MAX_PATTERNS:
        raise DetError(f"there are {len(patterns)} patterns of files; expected at most {MAX_PATTERNS}")
    if long := next((pattern for pattern in patterns if len(pattern) > _MAX_LENGTH), None):
        raise DetError(f"the pattern {long:.50}... has {len(long)} characters; expected at most {_MAX_LENGTH}")
    try:
        found: Iterable[Any] = GitIgnoreSpec.from_lines(patterns).patterns
    except (ValueError, re.error) as error:
        raise DetError(f"a pattern of files is malformed: {error}") from None
    settled: Any = map(_without_choices, found)
    return GitIgnoreSpec(settled).match_file


def _without_choices(pattern: RegexPattern) -> RegexPattern:
    """Return an equal pattern that tries one way only to match what is before its last wildcards.

    The shortest match leaves most to the rest of the pattern, so that no other one can match where it does not.
    """
    from pathspec.pattern import RegexPattern

    if pattern.regex is None:  # such as a range without an end, which matches nothing
        return RegexPattern(None)
    numbers = itertools.count()

    def settle(text: str) -> str:
        name = f"settled{next(numbers)}"
        return f"(?=(?P<{name}>{text}))(?P={name})"  # an atomic group, which Python 3.10 does not have

    text = _STARS.sub("[^/]*", pattern.regex.pattern)
    text = _STAR_BEFORE_ANOTHER.sub(lambda found: settle(f"[^/]*?{found[1]}"), text)
    text = _DIRECTORIES_BEFORE_OTHERS.sub(lambda found: settle(f"{_SHORTEST[found[1]]}{found[2]}(?=/)"), text)
    return RegexPattern(re.compile(text), pattern.include)
