"""Sync of files, so that they survive a power failure, with the cheapest system call that their file system offers."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from det_core.local_files.parallel import in_parallel

if TYPE_CHECKING:
    from ctypes import CDLL

_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h
_THREADS = 16
_SYNCED_AS_A_WHOLE = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "nfs", "nfs4", "tmpfs", "xfs", "zfs"}
"""File systems where syncfs(2) is known to write as much as fsync(2) of each file. FUSE does not guarantee this."""


def sync_paths(paths: Collection[Path]) -> None:
    """Wait until the contents of these files and the entries of these directories are on the medium."""
    in_parallel(_sync_path, paths, threads=_THREADS)


def start_sync(descriptor: int, start: int, size: int) -> None:
    """Make the kernel start writing a range of a file to the medium without waiting. `sync_paths` then takes less time.

    Args:
        descriptor: descriptor of the file.
        start: offset of the range in bytes.
        size: length of the range in bytes.
    """
    from ctypes import c_int64

    sync_file_range = getattr(_libc(), "sync_file_range", None)
    if sync_file_range is not None:  # only a hint, so errors are ignored
        sync_file_range(descriptor, c_int64(start), c_int64(size), _SYNC_FILE_RANGE_WRITE)


def sync_file_system(path: Path) -> bool:
    """Wait until everything written to the file system of ``path``, by any process, is on the medium.

    Returns:
        True if the file system was synced, False if it or the kernel is not known to do this reliably.

    Raises:
        OSError: a write failed.
    """
    from ctypes import get_errno

    syncfs = getattr(_libc(), "syncfs", None)
    if syncfs is None or not _tells_errors() or _file_system(path) not in _SYNCED_AS_A_WHOLE:
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if syncfs(descriptor):
            raise OSError(get_errno(), os.strerror(get_errno()), str(path))
    finally:
        os.close(descriptor)
    return True


@cache
def _libc() -> CDLL:
    from ctypes import CDLL  # here, because most processes save no checkpoint and importing ctypes takes 4 ms

    return CDLL(None, use_errno=True)


def _tells_errors() -> bool:
    """Return whether syncfs(2) of this kernel reports failed writes, as it does since Linux 5.8."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return version is not None and (int(version[1]), int(version[2])) >= (5, 8)


def _file_system(path: Path) -> str | None:
    """Return the type of a path's file system, or None if it is not listed.

    This reads ``/proc/self/mountinfo`` (proc(5)), because psutil does not know the device numbers of mounts.
    """
    mounts = Path("/proc/self/mountinfo")
    if not mounts.exists():
        return None
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.read_text(encoding="utf-8").splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2] == wanted:
            return source.split()[0]
    return None


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
