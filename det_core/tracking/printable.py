"""Removal of escape sequences from recorded text, which may come from untrusted code."""

from __future__ import annotations

import re

_COLOUR = r"\x1b\[[0-9;:]*m"
_ESCAPE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])?"
# These include marks that change the direction of text, and halves of surrogate pairs, which no output can encode.
_INVISIBLE = "\u200b\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff"
_ESCAPES = re.compile(_ESCAPE)
_IN_LINE = re.compile(rf"{_ESCAPE}|[\x00-\x08\x0a-\x1f\x7f-\x9f{_INVISIBLE}]")
_IN_OUTPUT = re.compile(rf"({_COLOUR})|{_ESCAPE}|[\x00-\x08\x0b-\x1f\x7f-\x9f{_INVISIBLE}]")


def printable_text(text: str) -> str:
    """Return the text in one line, without escape sequences and control characters except tabs."""
    return text if text.isprintable() else _IN_LINE.sub("", text)


def printable_line(line: str) -> str:
    """Return the final state of a printed line, without its line break and text that a carriage return overwrote."""
    return printable_text(_ESCAPES.sub("", line).rstrip("\r\n").rpartition("\r")[2])


def printable_output(text: str) -> str:
    """Return the text without escape sequences except colours. Line breaks are kept."""
    return text if text.isascii() and text.isprintable() else _IN_OUTPUT.sub(r"\1", text)
