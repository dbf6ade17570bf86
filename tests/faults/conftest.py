"""Small disk, temporary directory and database for one round of the campaign."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..postgresql import PostgreSQL
from ..runner.conftest import context_dir, installed, toy_framework, toy_site  # noqa: F401
from ..tracking.conftest import server  # noqa: F401

DISK_SIZE = 8 << 20
"""Size in bytes of the disk for checkpoints."""

Databases = Callable[[str], tuple[str, PostgreSQL | None]]


@pytest.fixture
def temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the directory that is the ``TMPDIR`` of all processes of the round."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of `DISK_SIZE` bytes, or create a plain directory if mounting is not possible."""
    directory = tmp_path / "disk"
    directory.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"det-test", os.fsencode(directory), b"tmpfs", 0, b"size=%d,mode=0700" % DISK_SIZE):
        yield directory
        return
    try:
        yield directory
    finally:
        libc.umount2(os.fsencode(directory), 2)  # MNT_DETACH works even if a process has a file open there


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Databases:
    """Return a function that creates an empty database of a kind, and returns its URL and its server or None."""

    def create(kind: str) -> tuple[str, PostgreSQL | None]:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/det.db", None
        running: PostgreSQL = request.getfixturevalue("server")
        return running.create_database(), running

    return create
