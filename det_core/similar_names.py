"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, or None if none is similar."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a question that suggests the most similar known name, or an empty string.

    The question begins with a semicolon, so that it can follow an error message.
    """
    close = closest_name(name, known)
    return f"; did you mean {close!r}?" if close else ""
