"""Colours of terminal output, as pieces of plain text with names of style classes."""

from __future__ import annotations

import re

from det_core.tracking.printable import printable_line, printable_output

_COLOUR = re.compile(r"\x1b\[([0-9;:]*)m")
_STYLES = {1: "b", 2: "dim", 3: "i", 4: "u"}
LONGEST_SHOWN_LINE = 20_000
"""Maximum number of characters of a line that are shown."""

Segment = tuple[str, str]
"""Names of style classes, separated by spaces, and the text in that style."""


def colored_segments(line: str) -> list[Segment]:
    """Split a line that a program printed into pieces of one style each.

    Escape sequences other than colours are removed, and text that a carriage return overwrote is left out.
    """
    line = line[:LONGEST_SHOWN_LINE]
    if "\x1b" not in line:
        return [("", printable_line(line))]
    visible = printable_output(line.rstrip("\r\n").rpartition("\r")[2])
    classes: list[str] = []
    pieces = _COLOUR.split(visible)
    found: list[Segment] = [("", pieces[0])]
    for codes, text in zip(pieces[1::2], pieces[2::2], strict=True):
        classes = _changed_style(classes, codes)
        found.append((" ".join(classes), text))
    return [(names, text) for names, text in found if text]


def _changed_style(classes: list[str], codes: str) -> list[str]:
    """Return the style classes after a sequence of colour codes."""
    numbers = iter([int(code) if code.isdigit() and len(code) < 4 else 0 for code in re.split("[;:]", codes)])
    for code in numbers:
        if code == 0:
            classes = []
        elif code in (38, 48):  # colours of a larger palette are shown without colour
            for _ in range(1 if next(numbers, None) == 5 else 3):
                next(numbers, None)
        elif code in _STYLES:
            classes = [*(name for name in classes if name != _STYLES[code]), _STYLES[code]]
        elif code == 22:
            classes = [name for name in classes if name not in ("b", "dim")]
        elif 30 <= code <= 39 or 90 <= code <= 97:
            classes = [name for name in classes if not name.startswith("fg")]
            classes += [f"fg{code % 10}"] if code != 39 else []
    return classes
