"""What lies under a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def walk(directory: str | Path, prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Relative paths with their entries, sorted: everything but directories that are not empty.

    Empty directories end in ``/``. Symbolic links are not followed. What vanishes meanwhile is left out.
    """
    try:
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    for entry in found:
        path = prefix + entry.name
        if not entry.is_dir(follow_symlinks=False):
            yield path, entry
            continue
        path += "/"
        inside = walk(entry.path, path)
        first = next(inside, None)
        if first is None:
            yield path, entry
        else:
            yield first
            yield from inside
