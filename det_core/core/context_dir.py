"""Selection of the files in a context directory that are the user's code."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from det_core.errors import DetError
from det_core.home import home_directory
from det_core.ignore_patterns import pattern_matcher

IGNORE_FILE = ".detignore"
_MOST_ENTRIES = 200_000
"""Maximum number of files and directories. An archive of more would be too large, and links may lead to any number."""
_ALWAYS_IGNORED = ("__pycache__/", ".git/", ".venv/", ".ipynb_checkpoints/")


def context_files(directory: Path) -> Iterator[str]:
    """Yield the sorted paths of the files in a context directory, relative to it.

    Files that match its ``.detignore``, which has the syntax of ``.gitignore``, are omitted. Links are followed.
    Broken links, links to a directory that contains them, and det's own data in ``DET_HOME`` are also omitted.

    Args:
        directory: the context directory.

    Raises:
        DetError: the directory is ``DET_HOME`` itself, or has too many files or patterns.
        OSError: the directory, or a directory inside, cannot be read.
    """
    directory, own = Path(os.path.realpath(directory)), Path(os.path.realpath(home_directory()))
    if directory == own:
        raise DetError(
            f"{str(directory)!r} is DET_HOME, where det keeps its own data; "
            "give a directory that contains only your code, or set DET_HOME to another directory"
        )
    ignore_file = directory / IGNORE_FILE
    text = ignore_file.read_text(encoding="utf-8", errors="surrogateescape") if ignore_file.is_file() else ""
    patterns = text.splitlines()
    ignored = pattern_matcher([*_ALWAYS_IGNORED, *patterns])
    brings_back = any(pattern.startswith("!") for pattern in patterns)  # may apply inside an ignored directory

    entries = itertools.count(1)

    def left_out(name: str, path: Path) -> bool:
        if next(entries) > _MOST_ENTRIES:
            raise DetError(
                f"the context directory {str(directory)!r} has more than {_MOST_ENTRIES} files and directories, with "
                f"those behind links; list data and outputs in its file {IGNORE_FILE}"
            )
        return own in (path, path.parent) or (ignored(name) and not (brings_back and name.endswith("/")))

    yield from sorted(_walk(directory, "", (directory,), left_out))


def _walk(
    directory: Path, prefix: str, above: tuple[Path, ...], left_out: Callable[[str, Path], bool]
) -> Iterator[str]:
    for path in directory.iterdir():
        real = Path(os.path.realpath(path)) if path.is_symlink() else path
        name = f"{prefix}{path.name}/" if real.is_dir() else f"{prefix}{path.name}"
        if real in above or left_out(name, real):
            continue
        if real.is_dir():
            yield from _walk(real, name, (*above, real), left_out)
        elif real.is_file():
            yield name
