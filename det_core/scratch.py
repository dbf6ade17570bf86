"""Scratch directories, which outlive no process for long."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from shutil import rmtree

_MARK = ".det-scratch"
"""A file in each of them. Directories without it are never removed."""
_KEPT = ".det-kept"
"""A file in each of them that stays."""


@contextmanager
def scratch_directory(kind: str, parent: Path | None = None) -> Iterator[Path]:
    """Make an empty directory that only this user can read, and remove it at the end of the block.

    If this process is killed before, the next process of the same user that makes one removes it. The directory is
    locked with flock(2), for that, and because systemd-tmpfiles leaves locked directories alone however old they are.

    Args:
        kind: what it is for, such as ``"context"``; part of its name.
        parent: where it is made; by default the directory for temporary files.
    """
    parent = parent or Path(tempfile.gettempdir())
    _sweep(parent)
    outer = Path(tempfile.mkdtemp(prefix=f"det-{kind}-", dir=parent))
    with ExitStack() as ending:
        ending.callback(_remove_unless_kept, outer)
        lock = os.open(outer, os.O_RDONLY | os.O_DIRECTORY)
        ending.callback(os.close, lock)
        if _try_to_lock(lock):
            (outer / _MARK).touch()
        directory = outer / "files"
        directory.mkdir(mode=0o700)
        yield directory


def keep_directory(directory: Path) -> None:
    """Keep a directory that `scratch_directory` made from being removed by anybody."""
    (directory.parent / _KEPT).touch()


def _remove_unless_kept(directory: Path) -> None:
    """Remove a directory as far as possible, with what its user made read-only."""
    if (directory / _KEPT).exists():
        return
    with suppress(OSError):  # a cleaner of temporary files is there, too
        for parent, names, _ in os.walk(directory):
            for path in (Path(parent, name) for name in names):
                if not path.is_symlink():
                    path.chmod(0o700)
    rmtree(directory, ignore_errors=True)


@cache
def _sweep(parent: Path) -> None:
    """Remove what killed processes of this user left behind. Done once per process, because it reads all names."""
    for directory in parent.glob("det-*-*"):
        with suppress(OSError):  # somebody else's, or gone
            _remove_unless_locked(directory)


def _remove_unless_locked(directory: Path) -> None:
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        is_ours = os.fstat(lock).st_uid == os.getuid() and (directory / _MARK).exists()
        if is_ours and _try_to_lock(lock):
            _remove_unless_kept(directory)
    finally:
        os.close(lock)


def _try_to_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process holds it, or the file system has no such locks
        return False
    return True
