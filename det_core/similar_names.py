"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a question that suggests the most similar known name, or an empty string.

    The question begins with a semicolon, so that it can follow an error message.
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
