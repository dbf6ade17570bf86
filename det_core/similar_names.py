"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

_MOST_NAMES, _LONGEST_NAME = 200, 100
"""Maximum number of known names that are compared, and length of each. The time grows with the cube of the length."""


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, or None if none is similar.

    Long names, and further ones after many, are left out, because a comparison takes long.
    """
    if len(name) > _LONGEST_NAME:
        return None
    compared = islice((one for one in known if len(one) <= _LONGEST_NAME), _MOST_NAMES)
    return next(iter(difflib.get_close_matches(name, list(compared), n=1)), None)


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a question that suggests the most similar known name, or an empty string.

    The question begins with a semicolon, so that it can follow an error message.
    """
    close = closest_name(name, known)
    return f"; did you mean {close!r}?" if close else ""
