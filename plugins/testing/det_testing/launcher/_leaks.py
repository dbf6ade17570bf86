"""Search for a text that other users of a machine could read. Tests also run this file in launched processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_LARGEST = 1 << 20
"""Size in bytes of the largest file that is read."""
_OLDEST = 600.0
"""Seconds since the last change of the oldest file that is read. A launch is younger than its test may be."""


def find_leaks(text: str, roots: Iterable[str]) -> list[str]:
    """Return the command lines, and the files readable by other users, that contain a text."""
    places = [*Path("/proc").glob("[0-9]*/cmdline"), *(file for root in roots for file in _readable_files(root))]
    found = []
    for path in places:
        with suppress(OSError):  # ended or removed meanwhile
            if path.stat().st_size < _LARGEST and text.encode() in path.read_bytes():
                found.append(str(path))
    return found


def _readable_files(root: str) -> Iterator[Path]:
    for directory, names, files in os.walk(root):
        if not Path(directory).stat().st_mode & 0o011:  # others cannot enter it
            names.clear()
            continue
        for file in files:
            path = Path(directory, file)
            with suppress(OSError):
                status = path.stat()
                if status.st_mode & 0o044 and status.st_ctime > time.time() - _OLDEST:
                    yield path
