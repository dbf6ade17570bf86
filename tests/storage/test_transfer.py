"""Transfers of files with checksums of parts, threads, durability and failing disks."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import google_crc32c
import pytest
from det_testing.small_disk import remount_read_only

from det_core import storage
from det_core.errors import DiskError, StorageError
from det_core.local_files import checksum, file_sync
from det_core.local_files.file_by_file import SourceFile
from det_core.local_files.parallel import in_parallel
from det_core.storage import directory
from det_core.storage.config import DirectoryConfig
from det_core.storage.directory import DirectoryStorage


def files(where: Path, count: int, size: int) -> dict[str, Path]:
    where.mkdir()
    for number in range(count):
        (where / f"f{number}").write_bytes(os.urandom(size))
    return storage.scan_directory(where)


@pytest.mark.parametrize("size", [0, 1, 1000, 4096, 4097, 50_000, 123_457])
def test_the_checksum_of_parts_is_that_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(checksum, "_PART", 4096)
    monkeypatch.setattr(checksum, "_PIECE", 1000)
    content = random.Random(size).randbytes(size)
    (tmp_path / "x").write_bytes(content)
    with (tmp_path / "copy").open("wb") as copy:
        entry = storage.checksum_file(tmp_path / "x", copy.fileno(), sync=True)
    assert entry == storage.Entry(size, google_crc32c.Checksum(content).hexdigest().decode())
    assert (tmp_path / "copy").read_bytes() == content


def test_a_small_file_takes_few_python_calls(tmp_path: Path) -> None:
    """Python calls can take more time than the system calls that copy a file of 1 KB."""
    store = DirectoryStorage(DirectoryConfig(container_path=tmp_path / "storage"))
    sources, count = files(tmp_path / "source", 100, 1024), 0

    def note(*_: object) -> None:
        nonlocal count
        count += 1

    store.put_files("warm-up", sources)
    sys.setprofile(note)
    try:
        store.put_files("measured", sources)
    finally:
        sys.setprofile(None)
    assert count / len(sources) < 125


def test_a_file_that_has_become_shorter_is_not_read(tmp_path: Path) -> None:
    """Otherwise a part with too few bytes would be sent."""
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    source = SourceFile(path)
    assert source.read(2, 3) == b"234"
    path.write_bytes(b"0123")
    with pytest.raises(StorageError, match="x changed while it was being stored"):
        source.read(2, 3)


def test_the_checksum_is_the_one_of_rfc_3720(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(32))
    assert storage.checksum_file(tmp_path / "x").crc32c == "8a9136aa"  # B.4: 32 bytes of zeroes, as a number


def test_work_is_done_by_several_threads_at_once() -> None:
    both = threading.Barrier(2)
    in_parallel(lambda _: both.wait(timeout=60), range(2), threads=2)


@pytest.mark.parametrize("threads", [1, 4])
def test_the_first_error_stops_the_others(threads: int) -> None:
    done: list[int] = []
    before = threading.active_count()

    def work(item: int) -> None:
        if item == 5:
            raise KeyError(item)
        done.append(item)

    with pytest.raises(KeyError):
        in_parallel(work, range(100_000), threads=threads)
    assert len(done) < 100_000
    assert threading.active_count() == before


@pytest.mark.parametrize("interrupts", [True, False], ids=["interrupts the wait", "arrives in another thread"])
@pytest.mark.parametrize("stop", [SystemExit, KeyboardInterrupt, StorageError])
def test_the_exception_of_a_signal_is_raised_after_all_threads_have_ended(
    stop: type[BaseException], interrupts: bool
) -> None:
    """Threads that continue after the error would store files again that were removed because of it."""
    main, both, told = threading.main_thread(), threading.Barrier(2), threading.Semaphore(0)
    done: list[int] = []

    def handle(number: int, frame: object) -> None:
        raise stop

    def work(item: int) -> None:
        both.wait(timeout=60)
        if threading.current_thread() is main:
            return
        receiver = main if interrupts else threading.current_thread()
        signal.pthread_kill(receiver.ident or 0, signal.SIGUSR1)
        assert told.acquire(timeout=60)
        done.append(item)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(stop):
            in_parallel(work, range(2), threads=2, on_error=told.release)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(done) == 1


INTERRUPTED = """
import os, random, signal
from contextlib import suppress
from det_core.local_files.parallel import in_parallel

def handle(number, frame):
    raise KeyboardInterrupt

chance = random.Random(5)
signal.signal(signal.SIGALRM, handle)
for _ in range(300):
    ended = []
    # CPython raises RuntimeError if the signal interrupts the start of a thread.
    with suppress(KeyboardInterrupt, RuntimeError):
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 2e-3))
        in_parallel(ended.append, range(50), threads=8)
        signal.setitimer(signal.ITIMER_REAL, 0)
os._exit(0)
"""
"""The exit skips the end of threads, because such a signal may leave a lock of CPython's `threading` locked."""


def test_a_signal_at_any_moment_ends_the_wait() -> None:
    """A signal between reading the queue of ended threads and counting them must not make the wait endless."""
    subprocess.run([sys.executable, "-c", INTERRUPTED], timeout=60, check=True)


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("known", [True, False])
def test_everything_is_synced_before_metadata_json(
    store: DirectoryStorage, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, known: bool
) -> None:
    synced: list[str] = []
    fsync, as_a_whole = file_sync._sync_path, directory.sync_file_system

    def noted(path: Path) -> None:
        synced.append(path.relative_to(base).as_posix())
        fsync(path)

    def whole(path: Path) -> bool:
        done = known and as_a_whole(path)
        synced.append(f"all {sorted(p.name for p in path.iterdir() if p.suffix == '.json')}" if done else "not all")
        return done

    monkeypatch.setattr(file_sync, "_sync_path", noted)
    monkeypatch.setattr(directory, "sync_file_system", whole)
    storage.save_checkpoint(store, "c", files(tmp_path / "source", count, 10), {})
    *before, partial, _, _, _ = synced
    assert ".partial-" in partial
    assert set(synced[-3:]) == {"c/metadata.json", "c", "."}
    if count == 40 and known:
        assert before == ["all []"]
    else:
        assert {f"c/f{number}" for number in range(count)} | {"c", "."} <= set(before)


def test_the_file_system_type_is_read_from_the_mounts(tmp_path: Path, small_disk: Path) -> None:
    assert file_sync._file_system(small_disk) == "tmpfs"
    assert file_sync.sync_file_system(small_disk)


def test_a_full_disk_is_an_error_and_leaves_nothing(small_disk: Path, tmp_path: Path) -> None:
    store = DirectoryStorage(DirectoryConfig(container_path=small_disk / "store"))
    small = files(tmp_path / "small", 3, 1000)
    storage.save_checkpoint(store, "fits", small, {})
    for name, count, size in (("one", 1, 3 << 20), ("many", 30, 100 << 10)):
        with pytest.raises(DiskError, match=rf"the disk of {small_disk}\S* \(\d MB free\) has no space left"):
            storage.save_checkpoint(store, name, files(tmp_path / name, count, size), {})
    assert store.stored().keys() == {"fits"}
    storage.restore_checkpoint(store, "fits", tmp_path / "back")


def test_a_disk_that_is_full_when_restoring_is_an_error(
    small_disk: Path, store: DirectoryStorage, tmp_path: Path
) -> None:
    storage.save_checkpoint(store, "c", files(tmp_path / "source", 1, 3 << 20), {})
    with pytest.raises(DiskError, match=rf"the disk of {small_disk}\S* \(0 MB free\) has no space left"):
        storage.restore_checkpoint(store, "c", small_disk / "back")


def test_a_read_only_disk_is_an_error(small_disk: Path, tmp_path: Path) -> None:
    remount_read_only(small_disk)
    store = DirectoryStorage(DirectoryConfig(container_path=small_disk / "store"))
    with pytest.raises(DiskError, match=rf"the disk of {small_disk}\S* \(2 MB free\) is read-only"):
        storage.save_checkpoint(store, "c", files(tmp_path / "source", 1, 10), {})


def test_a_limit_on_file_sizes_is_an_error(store: DirectoryStorage, base: Path, tmp_path: Path) -> None:
    large = files(tmp_path / "source", 1, 1 << 20)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, hard))
    try:
        with pytest.raises(StorageError, match="File too large"):
            storage.save_checkpoint(store, "c", large, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (base / "c").exists()


def test_a_directory_that_is_removed_during_the_upload_makes_no_checkpoint(
    store: DirectoryStorage, base: Path, tmp_path: Path
) -> None:
    entries = store.put_files("c", files(tmp_path / "source", 20, 10))
    shutil.rmtree(base / "c")
    with pytest.raises(StorageError, match="lost 'f0'"):
        storage.publish_checkpoint(store, "c", entries, {})
    assert not (base / "c").exists()


def test_stored_returns_the_time_of_the_latest_write(store: DirectoryStorage, base: Path, tmp_path: Path) -> None:
    assert store.stored() == {}
    storage.save_checkpoint(store, "old", files(tmp_path / "source", 1, 10), {})
    storage.save_checkpoint(store, "new", {}, {})
    for path in (base / "old", *(base / "old").iterdir()):
        os.utime(path, (0, 0))
    times = store.stored()
    assert times["old"] == datetime.fromtimestamp(0, timezone.utc)
    assert datetime.now(timezone.utc) - times["new"] < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("release", "tells"),
    [("4.18.0-553.el8", False), ("5.4.0-204-generic", False), ("5.8.0", True), ("6.1-rc2", True), ("10.0", True)],
)
def test_each_file_is_synced_on_old_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, tells: bool
) -> None:
    """Before Linux 5.8, syncfs(2) succeeds although a write has failed."""
    called: list[int] = []
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    libc = SimpleNamespace(syncfs=lambda descriptor: called.append(descriptor) or 0)
    monkeypatch.setattr(file_sync, "_libc", lambda: libc)
    monkeypatch.setattr(file_sync, "_file_system", lambda path: "xfs")
    assert file_sync.sync_file_system(tmp_path) is tells
    assert bool(called) is tells


@pytest.mark.parametrize("part", [1 << 16, 1 << 30])
def test_a_sparse_file_stays_sparse(
    store: DirectoryStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """A copy without holes would fill the disk with zeros."""
    monkeypatch.setattr(checksum, "_PART", part)
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        for position in (0, 3 << 20):
            file.seek(position)
            file.write(b"data")
        file.truncate(8 << 20)
    storage.save_checkpoint(store, "c", {"sparse": sparse}, {})
    storage.restore_checkpoint(store, "c", tmp_path / "back")
    copy = tmp_path / "back" / "sparse"
    assert storage.checksum_file(copy) == storage.checksum_file(sparse)
    assert copy.read_bytes() == sparse.read_bytes()
    assert copy.stat().st_blocks * 512 < 1 << 20


def test_an_unwritable_target_raises_a_storage_error(store: DirectoryStorage, tmp_path: Path) -> None:
    """Errors of the operating system must not reach the caller."""
    storage.save_checkpoint(store, "c", files(tmp_path / "source", 1, 5), {})
    (name,) = storage.find_checkpoint(store, "c").names()
    (tmp_path / "file").touch()
    (tmp_path / "taken" / name).mkdir(parents=True)
    for target in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "taken", tmp_path / ("x" * 300)):
        with pytest.raises(StorageError, match="cannot write the checkpoint to .*choose another directory"):
            storage.restore_checkpoint(store, "c", target)
    found = storage.find_checkpoint(store, "c")
    with pytest.raises(StorageError, match="cannot write the checkpoint to"):
        found.link([name], tmp_path / "taken", store.local_path("c"))
    (store.local_path("c") / name).unlink()
    (store.local_path("c") / name).mkdir()
    with pytest.raises(StorageError, match=f"cannot read {name} of checkpoint c: Is a directory"):
        found.link([name], tmp_path / "links", store.local_path("c"))
