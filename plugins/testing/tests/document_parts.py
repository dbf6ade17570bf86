"""Parts of documents that tests read and compare."""

from __future__ import annotations

import re
from collections.abc import Collection
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


def require_example(document: Path, language: str, example: Path, *, others: Collection[str] = ()) -> None:
    """Fail unless the snippets of a language are parts of the files of an example.

    Args:
        document: the document.
        language: language of the snippets, of which there must be some.
        example: directory of the example.
        others: snippets that belong to no example.
    """
    code = "\n".join(path.read_text() for path in example.iterdir() if path.is_file())
    shown = [snippet for snippet in snippets(document, language) if snippet not in others]
    assert shown, f"{document} has no {language}"
    missing = [snippet for snippet in shown if snippet not in code]
    assert not missing, f"{example} has no {missing}"


def declared_attributes(suite: type) -> set[str]:
    """Return the attributes that a compliance suite declares, with those of its base classes."""
    bases = [base for base in suite.__mro__ if base.__module__.startswith("det_testing")]
    return {name for base in bases for name in vars(base).get("__annotations__", {})}
