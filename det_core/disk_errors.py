"""Errors of disks that are full, over a quota, read-only or broken, whichever library reports them."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from det_core.errors import DiskError, RankFailed, TrackingError


class _Problem(NamedTuple):
    text: str
    """Part of the error's message, in lower case."""
    meaning: str
    remedy: str
    is_vague: bool = False
    """Whether the message does not say what the matter is."""


_VAGUE = ("has no space left, or has failed", "free some there, or see `dmesg`", True)
_PROBLEMS = (
    _Problem("no space left on device", "has no space left", "free some there, or inodes (`df -i`)"),
    _Problem("disk quota exceeded", "has no space left for you, because a quota is exhausted", "remove files there"),
    _Problem("read-only file system", "is read-only", "`dmesg` says whether it has failed; mount it again"),
    _Problem("input/output error", "has failed", "see `dmesg`"),
    _Problem("no usable temporary directory", *_VAGUE),  # Python's tempfile
    _Problem("unexpected pos ", *_VAGUE),  # torch.save
    _Problem("pytorchstreamwriter failed writing", *_VAGUE),
)
MENTIONED = re.compile("|".join(["DiskError: ", *(problem.text for problem in _PROBLEMS)]), re.IGNORECASE)
"""Texts in messages of errors of a disk."""
_NEARLY_FULL = 1 << 20
"""Number of free bytes below which a disk may be the one that an error without a path means."""
_PROBE = bytes(1 << 16)
"""Content of a file that shows why a disk cannot be written."""


def explain_disk_error(error: Exception, path: Path | None = None) -> DiskError | None:
    """Return an error that names the disk and its free space, or None if ``error`` is of another kind.

    Args:
        error: an error of any library. Its causes count, too.
        path: file or directory that was read or written, unless the error names it. By default, it is the directory for
            temporary files or the working directory, if its disk is full.
    """
    if isinstance(error, DiskError):
        return error
    if isinstance(error, (RankFailed, TrackingError)):  # which name the disk of another process, or of the database
        return None
    for cause in _causes(error):
        if problem := _find_problem(cause):
            place = _path_of(cause) or path or _find_full_disk()
            if problem.is_vague and place and (failure := _probe(place)):
                problem = _find_problem(failure) or problem
            disk = f"the disk of {place} ({format_free_space(place)})" if place else "a disk"
            message = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
            explained = DiskError(f"{disk} {problem.meaning}: {problem.remedy} ({message})")
            explained.__cause__ = error
            return explained
    return None


def free_bytes(path: Path) -> int:
    """Return the free space of the disk on which a file or directory is, or would be.

    Raises:
        OSError: the disk does not say.
    """
    return shutil.disk_usage(next(place for place in (path, *path.absolute().parents) if place.exists())).free


def format_free_space(path: Path) -> str:
    """Return the free space of the disk of a path as text, such as ``12 MB free``."""
    try:
        return f"{free_bytes(path) // 10**6} MB free"
    except OSError as error:
        return f"free space unknown: {error.strerror}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _find_problem(error: BaseException) -> _Problem | None:
    message = str(error).lower()
    return next((problem for problem in _PROBLEMS if problem.text in message), None)


def _path_of(error: BaseException) -> Path | None:
    name = getattr(error, "filename", None)
    return Path(name) if isinstance(name, str) else None


def _find_full_disk() -> Path | None:
    """Return a directory that processes of det write to and whose disk is full, if there is one."""
    for find in (tempfile.gettempdir, os.getcwd):
        with suppress(OSError):
            if free_bytes(place := Path(find())) < _NEARLY_FULL:
                return place
    return None


def _probe(path: Path) -> OSError | None:
    """Return the error of a small write to the disk of a path."""
    try:
        with tempfile.TemporaryFile(dir=path if path.is_dir() else path.parent) as file:
            file.write(_PROBE)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None
