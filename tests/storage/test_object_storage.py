"""`ObjectStorage` with parts, retries and limits, and the remains of failures."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

from det_core import storage
from det_core.errors import CheckpointCorrupt, CheckpointNotFound, StorageError
from det_core.interfaces.object_store import TransientError
from det_core.storage import object_storage
from det_core.storage._transfer import DEFAULT_RETRY_POLICY, RetryPolicy

from ..forked_child import call_in_child, ending_children
from .memory import Full, MemoryBucket

QUICK = RetryPolicy(tries=4, first=0.001, longest=0.01, total=5)
ID = "0c0ffee0-0000-4000-8000-000000000001"


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture
def store(bucket: MemoryBucket) -> storage.ObjectStorage:
    return storage.ObjectStorage(bucket, "some/prefix/", QUICK)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    (directory / "empty").mkdir(parents=True)
    (directory / "nothing").touch()
    (directory / "small").write_bytes(b"x")
    (directory / "one part").write_bytes(os.urandom(16))
    (directory / "parts").write_bytes(os.urandom(100))
    return directory


def save(store: storage.ObjectStorage, source: Path) -> dict[str, int]:
    return storage.save_checkpoint(store, ID, storage.scan_directory(source), {"steps_completed": 1})


def tree(directory: Path) -> dict[str, bytes]:
    return {
        name: b"" if name.endswith("/") else path.read_bytes()
        for name, path in storage.scan_directory(directory).items()
    }


def fails(
    times: int, *methods: str, error: Callable[[], Exception] = lambda: TransientError("busy")
) -> Callable[..., None]:
    """Fail the first requests to each method and key."""
    seen: dict[tuple[str, str], int] = {}

    def fail(method: str, key: str) -> None:
        if method in methods:
            seen[method, key] = seen.get((method, key), 0) + 1
            if seen[method, key] <= times:
                raise error()

    return fail


def test_a_client_for_a_user_who_waits_has_a_time_limit(bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    impatient = MemoryBucket()
    monkeypatch.setattr(bucket, "with_timeout", {10: impatient}.get)
    storage.check_storage(storage.ObjectStorage(bucket))
    assert (impatient.most_at_once, bucket.most_at_once) == (1, 0)


def test_a_bucket_with_a_url_has_locations() -> None:
    bucket = MemoryBucket()
    assert storage.ObjectStorage(bucket, "runs").location("a") == ""
    bucket.url = "s3://bucket"
    assert storage.ObjectStorage(bucket, "runs").location("a") == "s3://bucket/runs/a"
    assert storage.ObjectStorage(bucket).location("a") == "s3://bucket/a"


def test_a_checkpoint_is_saved_restored_and_deleted(
    bucket: MemoryBucket, store: storage.ObjectStorage, source: Path, tmp_path: Path
) -> None:
    resources = save(store, source)
    expected = {"empty/": 0, "nothing": 0, "small": 1, "one part": 16, "parts": 100}
    assert {name: resources[name] for name in expected} == expected
    assert {key.removeprefix(f"some/prefix/{ID}/") for key in bucket.objects} == set(resources)
    assert not bucket.uploads
    storage.restore_checkpoint(store, ID, tmp_path / "back")
    assert tree(tmp_path / "back") == tree(source)
    assert store.stored().keys() == {ID}
    storage.delete_stored_files(store, ID)
    assert not bucket.objects


def test_progress_counts_every_byte_once(store: storage.ObjectStorage, source: Path, tmp_path: Path) -> None:
    moved: list[int] = []
    save(store, source)
    storage.restore_checkpoint(store, ID, tmp_path / "back", progress=moved.append)
    assert sum(moved) == 117


@pytest.mark.parametrize("where", ["before", "after"])
def test_temporary_errors_are_retried(
    bucket: MemoryBucket, store: storage.ObjectStorage, source: Path, tmp_path: Path, where: str
) -> None:
    setattr(bucket, where, fails(3, "put", "get", "list", "delete", "begin", "put_part", "complete", "unfinished"))
    save(store, source)
    assert not bucket.uploads  # not even those whose response to begin was lost
    storage.restore_checkpoint(store, ID, tmp_path / "back")
    assert tree(tmp_path / "back") == tree(source)
    storage.delete_stored_files(store, ID)
    assert not bucket.objects


def test_lasting_errors_are_raised_and_leave_nothing(
    bucket: MemoryBucket, store: storage.ObjectStorage, source: Path
) -> None:
    bucket.before = fails(99, "put_part", error=lambda: TransientError("the server is busy"))
    with pytest.raises(StorageError, match=r"the server is busy; gave up after 4 tries in \d+ s"):
        save(store, source)
    assert not bucket.objects
    assert not bucket.uploads


def test_permanent_errors_are_not_retried(bucket: MemoryBucket, store: storage.ObjectStorage, source: Path) -> None:
    asked: list[str] = []

    def refuse(method: str, key: str) -> None:
        if method == "complete":
            asked.append(key)
            raise Full("no space")

    bucket.before = refuse
    with pytest.raises(Full, match="no space"):
        save(store, source)
    assert len(asked) == 1
    assert not bucket.objects
    assert not bucket.uploads


def test_a_failure_ends_the_waits_of_other_requests(tmp_path: Path) -> None:
    bucket = MemoryBucket()
    store = storage.ObjectStorage(bucket, "", RetryPolicy(tries=100, first=30, longest=60, total=600))
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    waiting = threading.Event()

    def fail(method: str, key: str) -> None:
        if method == "put" and key.endswith("a"):
            waiting.set()
            raise TransientError("later")
        if method == "put":
            assert waiting.wait(60)
            time.sleep(0.05)
            raise Full("no space")

    bucket.before = fail
    began = time.monotonic()
    with pytest.raises(StorageError):
        store.put_files(ID, {"a": tmp_path / "a", "b": tmp_path / "b"})
    assert time.monotonic() - began < 25


def test_the_server_determines_the_wait(bucket: MemoryBucket, source: Path) -> None:
    store = storage.ObjectStorage(bucket, "", RetryPolicy(tries=2, first=60, longest=60, total=600))
    bucket.before = fails(1, "put", error=lambda: TransientError("slow down", after=0.01))
    began = time.monotonic()
    store.put(ID, "x", source / "small")
    assert time.monotonic() - began < 25


def test_the_number_of_concurrent_requests_is_bounded(bucket: MemoryBucket, tmp_path: Path) -> None:
    bucket.connections = 3
    bucket.before = lambda method, key: time.sleep(0.005)
    (tmp_path / "large").write_bytes(bytes(500))
    storage.ObjectStorage(bucket, "", QUICK).put(ID, "large", tmp_path / "large")
    assert bucket.most_at_once == 3


def test_the_memory_limit_bounds_concurrent_requests(
    bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_core.storage._transfer._MEMORY", 33)
    bucket.before = lambda method, key: time.sleep(0.005)
    (tmp_path / "large").write_bytes(bytes(500))
    storage.ObjectStorage(bucket, "", QUICK).put(ID, "large", tmp_path / "large")
    assert bucket.most_at_once == 2


def test_a_file_with_too_many_parts_gets_larger_parts(bucket: MemoryBucket, tmp_path: Path) -> None:
    bucket.most_parts, bucket.part_size = 3, 1 << 20
    (tmp_path / "large").write_bytes(bytes((5 << 20) + 1))
    sizes: list[int] = []

    def note(method: str, key: str) -> None:
        if method == "complete":
            sizes.extend(len(part) for _, parts, _ in bucket.uploads.values() for part in parts.values())

    bucket.before = note
    storage.ObjectStorage(bucket, "", QUICK).put(ID, "large", tmp_path / "large")
    assert sorted(sizes) == [(1 << 20) + 1, 2 << 20, 2 << 20]


def test_data_that_is_corrupted_during_the_transfer_is_read_again(
    bucket: MemoryBucket, store: storage.ObjectStorage, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, source)
    real, left = bucket.get, [2]

    def get(key: str, start: int, size: int) -> bytes:
        data = real(key, start, size)
        if key.endswith("parts") and start == 32 and left[0]:
            left[0] -= 1
            return bytes([data[0] ^ 1]) + data[1:]
        return data

    monkeypatch.setattr(bucket, "get", get)
    storage.restore_checkpoint(store, ID, tmp_path / "back")
    assert tree(tmp_path / "back") == tree(source)
    assert left == [0]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1] or b"xy",
        lambda data: data + b"x",
        lambda data: bytes([data[0] ^ 1]) + data[1:] if data else b"y",
    ],
)
@pytest.mark.parametrize("name", ["small", "one part", "parts", "nothing"])
def test_damage_in_the_store_is_detected(
    bucket: MemoryBucket,
    store: storage.ObjectStorage,
    source: Path,
    tmp_path: Path,
    name: str,
    change: Callable[[bytes], bytes],
) -> None:
    save(store, source)
    key = f"some/prefix/{ID}/{name}"
    data, written = bucket.objects[key]
    bucket.objects[key] = change(data), written
    with pytest.raises(CheckpointCorrupt, match=f"{name} should have {len(data)} bytes"):
        storage.restore_checkpoint(store, ID, tmp_path / "back")
    assert not (tmp_path / "back" / name).exists()
    assert not (tmp_path / "back" / "metadata.json").exists()


def test_a_lost_file_is_named(bucket: MemoryBucket, store: storage.ObjectStorage, source: Path, tmp_path: Path) -> None:
    save(store, source)
    del bucket.objects[f"some/prefix/{ID}/parts"]
    with pytest.raises(CheckpointCorrupt, match="lacks parts"):
        storage.restore_checkpoint(store, ID, tmp_path / "back")


def test_a_longer_target_is_truncated(store: storage.ObjectStorage, source: Path, tmp_path: Path) -> None:
    store.put(ID, "parts", source / "parts")
    (tmp_path / "target").write_bytes(bytes(1000))
    crc = store.get(ID, "parts", tmp_path / "target")
    data = (source / "parts").read_bytes()
    assert (tmp_path / "target").read_bytes() == data
    assert crc == f"{google_crc32c.value(data):08x}"


def test_a_checkpoint_of_the_original_restores(
    bucket: MemoryBucket, store: storage.ObjectStorage, tmp_path: Path
) -> None:
    for path, data in {"a/": b"", "a/b": bytes(40), "metadata.json": b'{"steps_completed": 3}'}.items():
        bucket.put(f"some/prefix/{ID}/{path}", data, google_crc32c.value(data))
    with pytest.warns(UserWarning, match="no checksums"):
        storage.restore_checkpoint(store, ID, tmp_path / "back")
    assert (tmp_path / "back" / "a" / "b").read_bytes() == bytes(40)


@pytest.mark.parametrize(
    ("prefix", "start"),
    [
        ("", ""),
        ("/", ""),
        ("a//b", "a/b/"),
        ("x/./p/", "x/p/"),
        ("//a", "a/"),
        ("./a", "a/"),
        (".", "./"),
        ("a b", "a b/"),
    ],
)
def test_prefixes_are_normalized_as_in_the_original(bucket: MemoryBucket, prefix: str, start: str) -> None:
    bucket.put(f"{start}{ID}/w", b"x", google_crc32c.value(b"x"))
    assert storage.ObjectStorage(bucket, prefix, QUICK).list(ID) == {"w": 1}


def test_only_selected_files_are_read(
    bucket: MemoryBucket, store: storage.ObjectStorage, source: Path, tmp_path: Path
) -> None:
    save(store, source)
    asked: list[tuple[str, str]] = []
    bucket.before = lambda method, key: asked.append((method, key.rpartition("/")[2]))
    storage.restore_checkpoint(store, ID, tmp_path / "back", selector=lambda name: name == "small")
    assert {key for method, key in asked if method == "get"} == {"small", "metadata.json"}
    assert set(tree(tmp_path / "back")) == {"small"}


def test_unfinished_uploads_count_as_stored_and_are_deleted(bucket: MemoryBucket, store: storage.ObjectStorage) -> None:
    upload = bucket.begin(f"some/prefix/{ID}/large")
    bucket.put_part(f"some/prefix/{ID}/large", upload, 0, b"x", google_crc32c.value(b"x"))
    assert store.stored().keys() == {ID}
    with pytest.raises(CheckpointNotFound):
        storage.find_checkpoint(store, ID)
    storage.delete_stored_files(store, ID)
    assert not bucket.uploads


def test_a_file_that_changes_while_it_is_stored_is_never_complete(
    bucket: MemoryBucket, store: storage.ObjectStorage, source: Path
) -> None:
    def grow(method: str, key: str) -> None:
        if method == "put_part":
            (source / "parts").write_bytes(bytes(100))
            os.utime(source / "parts", (1, 1))

    bucket.before = grow
    with pytest.raises(StorageError, match="changed while it was being stored"):
        save(store, source)
    assert not bucket.objects
    assert not bucket.uploads


@pytest.mark.parametrize("size", [10, 100])
def test_the_old_content_of_a_growing_file_is_stored(
    bucket: MemoryBucket, store: storage.ObjectStorage, tmp_path: Path, size: int
) -> None:
    """The event file of a running trial grows like this."""
    path = tmp_path / "events"
    path.write_bytes(bytes(range(size)))

    def grow(method: str, key: str) -> None:
        with path.open("ab") as file:
            file.write(b"more")

    bucket.before = grow
    crc = store.put(ID, "events", path)
    assert bucket.objects[f"some/prefix/{ID}/events"][0] == bytes(range(size))
    assert crc == f"{google_crc32c.value(bytes(range(size))):08x}"


@pytest.mark.parametrize("size", [10, 100])
def test_a_file_that_shrinks_during_the_upload_is_an_error(
    bucket: MemoryBucket, store: storage.ObjectStorage, tmp_path: Path, size: int
) -> None:
    path = tmp_path / "events"
    path.write_bytes(bytes(size))
    bucket.before = lambda method, key: path.write_bytes(b"")
    with pytest.raises(StorageError, match="events changed while it was being stored"):
        store.put(ID, "events", path)
    assert not bucket.uploads


def test_deleting_files_does_not_abort_uploads_of_other_files(
    bucket: MemoryBucket, store: storage.ObjectStorage, source: Path
) -> None:
    """TensorBoard files of several experiments have one storage id."""
    for name in ("1/events", "1/trace", "2/events"):
        bucket.begin(f"some/prefix/{ID}/{name}")
        store.put(ID, f"{name}-done", source / "small")
    store.delete(ID, ["1/trace", "1/trace-done"])
    assert sorted(key for key, _, _ in bucket.uploads.values()) == [
        f"some/prefix/{ID}/1/events",
        f"some/prefix/{ID}/2/events",
    ]
    storage.delete_stored_files(store, ID, ["/1/"])
    assert [key for key, _, _ in bucket.uploads.values()] == [f"some/prefix/{ID}/2/events"]
    assert sorted(store.list(ID)) == ["2/events-done"]
    storage.delete_stored_files(store, ID)
    assert not bucket.uploads
    assert not bucket.objects


def test_the_parts_of_a_file_are_counted_once(
    bucket: MemoryBucket, store: storage.ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting the parts for each part would take time that grows with the square of their number."""
    calls: list[int] = []
    steps = object_storage._Upload.steps
    monkeypatch.setattr(object_storage._Upload, "steps", lambda upload: calls.append(1) or steps(upload))
    (tmp_path / "large").write_bytes(bytes(200 * bucket.part_size))
    store.put_files(ID, {"large": tmp_path / "large"})
    assert len(bucket.objects[f"some/prefix/{ID}/large"][0]) == 200 * bucket.part_size
    assert len(calls) == 1


def test_immediate_errors_are_retried_until_the_total_time_has_passed(bucket: MemoryBucket, source: Path) -> None:
    """The number of attempts must not end the retries before the documented 120 s."""
    asked: list[str] = []

    def fail(method: str, key: str) -> None:
        asked.append(method)
        if len(asked) <= 50:
            raise TransientError("busy")

    bucket.before = fail
    retry_policy = RetryPolicy(first=0.0001, longest=0.0001, total=60)
    storage.ObjectStorage(bucket, "", retry_policy).put(ID, "x", source / "small")
    assert len(asked) == 51
    asked.clear()
    with pytest.raises(StorageError, match="busy; gave up after 1 tries"):
        storage.ObjectStorage(bucket, "", RetryPolicy(first=0.0001, total=0)).put(ID, "x", source / "small")
    assert DEFAULT_RETRY_POLICY.tries is None


def test_a_long_outage_is_announced_once(
    bucket: MemoryBucket, source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(method: str, key: str) -> None:
        raise TransientError("busy")

    bucket.before = fail
    store = storage.ObjectStorage(bucket, "", RetryPolicy(tries=5, first=0.0001, longest=0.0001, total=60))
    for after, announced in ((60.0, []), (0.0, ["busy; will retry for 60 s"])):
        monkeypatch.setattr("det_core.storage._transfer._SAY_AFTER", after)
        with pytest.raises(StorageError, match="busy; gave up after 5 tries"):
            store.put(ID, "x", source / "small")
        assert caplog.messages == announced


def test_a_forked_child_does_not_use_the_connections_of_its_parent(store: storage.ObjectStorage, source: Path) -> None:
    save(store, source)
    arguments = {
        "storage_id": ID,
        "path": "small",
        "source": source / "small",
        "target": source / "target",
        "files": {"small": source / "small"},
        "store.get_files.files": {"small": (source / "target", 1)},
        "paths": ["small"],
        "selected": bool,
    }
    with ending_children():
        outcomes = call_in_child({"store": store}, arguments)
    here = {name.partition(".")[2] for name, outcome in outcomes.items() if "belongs to process" not in outcome}
    assert here == {"local_path", "location", "sync", "transfers"}, outcomes
