"""Access to what is below a directory that others may write to, without following the links that they put there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


def open_below(directory: Path, path: str) -> int:
    """Open a file below a directory for reading, and return the descriptor.

    Args:
        directory: the directory, which must not be a link itself.
        path: relative path of the file.

    Raises:
        OSError: the file is a link, or below one, or cannot be opened.
    """
    with opened_parent(directory, path) as (parent, name):
        return os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=parent)


@contextmanager
def opened_parent(directory: Path, path: str) -> Iterator[tuple[int, str]]:
    """Open the parent of a path below a directory, and yield its descriptor and the last name of the path.

    Arguments and errors are those of `open_below`.
    """
    *parents, name = path.split("/")
    with ExitStack() as stack:
        place = os.open(directory.parent, _DIRECTORY)
        stack.callback(os.close, place)
        for parent in (directory.name, *parents):
            place = os.open(parent, _DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            stack.callback(os.close, place)
        yield place, name
