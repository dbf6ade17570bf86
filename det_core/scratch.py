"""Scratch directories that are removed even if their process is killed."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from shutil import rmtree

from det_core.owner_process import OwnerProcess

__all__ = ["scratch_directory"]

_MARK = ".det-scratch"
"""File in each scratch directory. Directories without it are never removed."""
_KEPT = ".det-kept"
"""File in each scratch directory that must not be removed."""


@contextmanager
def scratch_directory(kind: str, parent: Path | None = None) -> Iterator[Path]:
    """Make an empty directory that only this user can read, and remove it at the end of the block.

    A forked child that leaves the block does not remove it. If this process is killed first, the next process of the
    same user that makes a scratch directory removes it. The directory is locked with flock(2) to show that it is in
    use. systemd-tmpfiles skips locked directories of any age.

    Args:
        kind: purpose, such as ``"context"``. It becomes part of the name.
        parent: directory to make it in. By default the directory for temporary files.
    """
    parent = parent or Path(tempfile.gettempdir())
    _sweep_abandoned(parent)
    owner = OwnerProcess()
    outer = Path(tempfile.mkdtemp(prefix=f"det-{kind}-", dir=parent))

    def remove() -> None:
        if owner.is_here:
            _remove_unless_kept(outer)

    with ExitStack() as ending:
        ending.callback(remove)
        lock = os.open(outer, os.O_RDONLY | os.O_DIRECTORY)
        ending.callback(os.close, lock)
        if _try_to_lock(lock):
            (outer / _MARK).touch()
        directory = outer / "files"
        directory.mkdir(mode=0o700)
        yield directory


def keep_directory(directory: Path) -> None:
    """Protect a directory that `scratch_directory` made from removal."""
    (directory.parent / _KEPT).touch()


def _remove_unless_kept(directory: Path) -> None:
    """Remove a directory as far as possible, including read-only parts."""
    if (directory / _KEPT).exists():
        return
    with suppress(OSError):  # a cleaner of temporary files may remove it at the same time
        for parent, names, _ in os.walk(directory):
            for path in (Path(parent, name) for name in names):
                if not path.is_symlink():
                    path.chmod(0o700)
    rmtree(directory, ignore_errors=True)


@cache
def _sweep_abandoned(parent: Path) -> None:
    """Remove scratch directories of this user's killed processes. Runs once per process, because it lists all names."""
    for directory in parent.glob("det-*-*"):
        with suppress(OSError):  # another user's, or gone
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
    except OSError:  # another process holds it, or the file system does not support flock
        return False
    return True
