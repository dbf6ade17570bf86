"""Small file system for tests of full disks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(directory: Path, *, size: int) -> Iterator[Path]:
    """Mount a file system in memory while the block runs. Skip the test without the right to mount.

    Args:
        directory: mount point, which is created.
        size: size in bytes, a multiple of 4096.
    """
    directory.mkdir()
    mount: list[str | Path] = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def fill_disk(disk: Path, *, left: int = 0) -> Path:
    """Fill a `small_disk` with one file, and return it.

    Args:
        disk: the disk.
        left: number of bytes to leave free, a multiple of 4096.
    """
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(bytes(4096))
        file.truncate(file.tell() - left)
    return ballast


def remount_read_only(disk: Path) -> None:
    """Make a `small_disk` read-only, as the kernel does with a disk that fails."""
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
