"""Traversal of directories, and checks that paths stay inside them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from det_core.errors import CheckpointCorrupt


def walk_directory(directory: str | Path, prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the relative path and the entry of every file and every empty directory, sorted by name in each directory.

    Paths of empty directories end in ``/``. Symbolic links are not followed. Files that vanish during the traversal are
    skipped.

    Args:
        directory: the directory to traverse.
        prefix: text to put before each path.
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
        inside = walk_directory(entry.path, path)
        first = next(inside, None)
        if first is None:
            yield path, entry
        else:
            yield first
            yield from inside


def parent_directories(path: str) -> Iterator[str]:
    """Yield the parent directories of a path. Those of ``a/b/c`` and of ``a/b/c/`` are ``a/`` and ``a/b/``."""
    end = path.find("/")
    while -1 < end < len(path) - 1:
        yield path[: end + 1]
        end = path.find("/", end + 1)


def is_inside(path: str) -> bool:
    """Return whether a relative path from a store or a manifest stays within its directory."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:  # a lone surrogate, which is valid in JSON but not in file names
        return False
    return "\0" not in path and not {"", ".", ".."}.intersection(path.removesuffix("/").split("/"))


def refuse_outside(directory: str | Path, path: str) -> None:
    """Raise CheckpointCorrupt if symbolic links on a path lead out of a directory."""
    real = os.path.realpath(f"{directory}/{path}")
    if not real.startswith(os.path.realpath(directory) + os.sep):
        raise CheckpointCorrupt(
            f"{directory}/{path} is a link out of the checkpoint, to {real}; remove it, or exclude it with a selector"
        )
