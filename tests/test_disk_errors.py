"""Errors of disks, as the operating system and libraries report them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from det_testing.small_disk import fill_disk, remount_read_only, small_disk

from det_core.disk_errors import MENTIONED, explain_disk_error
from det_core.errors import DiskError, RankFailed, TrackingError

TORCH = RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 813120 vs 813008")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/proc/x"),
            r"^the disk of /proc/x \(0 MB free\) has no space left: ",
        ),
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
            r"^a disk has no space left: .* \(OSError: \[Errno 28\]",
        ),
        (
            OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
            "^a disk has no space left for you, because a quota is exhausted",
        ),
        (OSError(errno.EROFS, os.strerror(errno.EROFS)), "^a disk is read-only"),
        (OSError(errno.EIO, os.strerror(errno.EIO)), "^a disk has failed: see `dmesg`"),
        (
            ValueError("x.tmp\n; No space left on device [Op:SaveV2]"),
            "^a disk has no space left: .*ValueError: x.tmp ; No space",
        ),
        (raised_from(ValueError("no"), OSError(errno.EIO, os.strerror(errno.EIO))), "^a disk has failed"),
        (TORCH, "^a disk has no space left, or has failed: .*unexpected pos 813120 vs 813008"),
        (OSError(errno.EACCES, os.strerror(errno.EACCES)), None),
        (TrackingError("PostgreSQL says: could not extend file: No space left on device"), None),
        (RankFailed("rank 0: DiskError: the disk of /x has failed (OSError: [Errno 5] Input/output error)"), None),
    ],
)
def test_an_error_of_a_disk_is_named(error: Exception, message: str | None) -> None:
    explained = explain_disk_error(error)
    if message is None:
        assert explained is None
        return
    assert explained and explained.__cause__ is error
    with pytest.raises(DiskError, match=message):
        raise explained
    assert MENTIONED.search(f"rank 1: {type(error).__name__}: {error}") or error.__cause__
    assert MENTIONED.search(f"{type(explained).__name__}: {explained}")
    assert explain_disk_error(explained) is explained


def test_a_write_finds_out_what_an_error_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(tmp_path / "disk", size=1 << 16) as disk:
        fill_disk(disk, left=4096)
        full = rf"the disk of {disk} \(0 MB free\) has no space left: free some there, .* \(RuntimeError: "
        with pytest.raises(DiskError, match=full):
            raise explain_disk_error(TORCH, disk) or AssertionError
        monkeypatch.chdir(disk)
        with pytest.raises(DiskError, match=full):
            raise explain_disk_error(TORCH) or AssertionError
        remount_read_only(disk)
        with pytest.raises(DiskError, match=rf"the disk of {disk} \(0 MB free\) is read-only"):
            raise explain_disk_error(TORCH, disk) or AssertionError
