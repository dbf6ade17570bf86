"""Making files survive a power failure, at the least cost that their file system offers."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Collection
from pathlib import Path

from det_core.storage._parallel import in_parallel

_LIBC = ctypes.CDLL(None, use_errno=True)
_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h
_THREADS = 16
_SYNCED_AS_A_WHOLE = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "nfs", "nfs4", "tmpfs", "xfs", "zfs"}
"""Where syncfs(2) is known to write everything that fsync(2) of each file would; in FUSE it need not."""


def sync(paths: Collection[Path]) -> None:
    """Wait until these files, and directories with the names in them, are on the medium."""
    in_parallel(_fsync, paths, threads=_THREADS)


def start_sync(descriptor: int, start: int, size: int) -> None:
    """Have the kernel begin to write these bytes to the medium, without waiting; `sync` later has less to do."""
    sync_file_range = getattr(_LIBC, "sync_file_range", None)
    if sync_file_range is not None:  # a hint, so its result does not matter
        sync_file_range(descriptor, ctypes.c_int64(start), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE)


def sync_file_system(path: Path) -> bool:
    """Wait until everything that was written to its file system is on the medium, by other processes too.

    Returns:
        Whether it was done; not where the file system is not known to do it.
    """
    syncfs = getattr(_LIBC, "syncfs", None)
    if syncfs is None or not _tells_errors() or _file_system(path) not in _SYNCED_AS_A_WHOLE:
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if syncfs(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    finally:
        os.close(descriptor)
    return True


def _tells_errors() -> bool:
    """Return whether syncfs(2) of this kernel reports failed writes, as it does since Linux 5.8."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return version is not None and (int(version[1]), int(version[2])) >= (5, 8)


def _file_system(path: Path) -> str | None:
    """Its type by proc(5), None where that does not tell."""
    mounts = Path("/proc/self/mountinfo")
    if not mounts.exists():
        return None
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.read_text().splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2] == wanted:
            return source.split()[0]
    return None


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
