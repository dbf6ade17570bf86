"""Recorded text without what a terminal would obey: names, metrics and log lines come from anybody's code."""

from __future__ import annotations

import re

_COLOUR = r"\x1b\[[0-9;:]*m"
_ESCAPE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])?"
_INVISIBLE = "\u200b\u2028-\u202e\u2060-\u2069\ufeff"  # among them those that turn the direction of writing around
_ESCAPES = re.compile(_ESCAPE)
_IN_LINE = re.compile(rf"{_ESCAPE}|[\x00-\x08\x0a-\x1f\x7f-\x9f{_INVISIBLE}]")
_IN_OUTPUT = re.compile(rf"({_COLOUR})|{_ESCAPE}|[\x00-\x08\x0b-\x1f\x7f-\x9f{_INVISIBLE}]")


def printable(text: str) -> str:
    """Return the text in one line, without escape sequences and control characters other than tabs."""
    return text if text.isprintable() else _IN_LINE.sub("", text)


def printable_line(line: str) -> str:
    """Return a printed line as it stands in the end: without its line break, and what it overwrote itself."""
    return printable(_ESCAPES.sub("", line).rstrip("\r\n").rpartition("\r")[2])


def printable_output(text: str) -> str:
    """Return the text without escape sequences other than colours; line breaks stay."""
    return text if text.isascii() and text.isprintable() else _IN_OUTPUT.sub(r"\1", text)
