"""What tests read from documents."""

from __future__ import annotations

import re
from pathlib import Path


def snippets(document: Path, language: str) -> list[str]:
    """The code in the fences of this language, in order."""
    fences = re.findall(r"^```(\w+)\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)
    return [code for name, code in fences if name == language]


def first_column(document: Path) -> set[str]:
    """The names that begin the rows of its tables."""
    return set(re.findall(r"^\| `(\w+)` \|", document.read_text(), re.MULTILINE))
