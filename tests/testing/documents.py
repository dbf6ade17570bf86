"""Parts of documents that tests read."""

from __future__ import annotations

import re
from pathlib import Path


def snippets(document: Path, language: str) -> list[str]:
    """Return the code in the fences of this language, in order."""
    fences = re.findall(r"^```(\w+)\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)
    return [code for name, code in fences if name == language]


def write_named_files(document: Path, directory: Path) -> None:
    """Write the files that a document shows whole, each in a fence whose first line is a comment with its name."""
    for language in ("python", "yaml"):
        for code in snippets(document, language):
            if named := re.match(r"# ([\w.]+)\n", code):
                (directory / named[1]).write_text(code)


def first_column(document: Path) -> set[str]:
    """Return the names at the beginning of the rows of all tables."""
    return set(re.findall(r"^\| `(\w+)` \|", document.read_text(), re.MULTILINE))
