"""Levels of the lines that programs print."""

from __future__ import annotations

import re

from det_core.interfaces.records import LogLine
from det_core.tracking.printable import printable_text

_READ = 200
"""Number of first characters of a line in which its level is looked for."""
_NAMED = re.compile(r"(?<![\w.=])(DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)(?![\w=])")
_LETTER = re.compile(r"([IWEF])\d{4,8} \d\d:\d\d:\d\d")
"""Beginning of the lines of glog and abseil, as of TensorFlow and JAX."""
_PYTHON_WARNING = re.compile(r"\b\w*Warning: ")
_PYTHON_ERROR = re.compile(r"Traceback \(most recent call last\)|(\w+\.)*\w*(Error|Exception|Interrupt)(:|$)")
_NAMES = {"WARN": "WARNING", "FATAL": "CRITICAL", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
_DEFAULT: str = LogLine.level


def level_of_line(text: str) -> str:
    """Return the level that a line names, or INFO if it names none.

    Args:
        text: the line, as a program printed it.
    """
    start = printable_text(text[:_READ])
    if found := _LETTER.match(start) or _NAMED.search(start):
        return _NAMES.get(found[1], found[1])
    if _PYTHON_ERROR.match(start):
        return "ERROR"
    return "WARNING" if _PYTHON_WARNING.search(start) else _DEFAULT
