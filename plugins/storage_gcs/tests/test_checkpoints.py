"""Whole checkpoints, which det saves to the bucket, restores and deletes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest
from det_storage_gcs._bucket import GCSBucket

from det_core.errors import CheckpointCorrupt, CheckpointNotFound, StorageError
from det_core.storage import (
    ObjectStorage,
    check_storage,
    delete_stored_files,
    restore_checkpoint,
    save_checkpoint,
    scan_directory,
)

from .tap import Answer, Request, Tap, refusal

pytestmark = [pytest.mark.usefixtures("server"), pytest.mark.integration]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    directory = tmp_path / "checkpoint"
    for name, size in {"small": 10, "deep/large ü": 2000, "larger": 5001, "none": 0}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    (directory / "empty").mkdir()
    return directory


def in_small_parts(bucket: GCSBucket) -> ObjectStorage:
    bucket.part_size = 100  # 51 parts of the largest file
    return ObjectStorage(bucket, "runs")


def test_a_checkpoint_can_be_restored_and_deleted(
    make_bucket: Callable[..., GCSBucket], checkpoint: Path, tmp_path: Path
) -> None:
    bucket = make_bucket()
    manager = in_small_parts(bucket)
    save_checkpoint(manager, "one", scan_directory(checkpoint), {"steps_completed": 3})
    restore_checkpoint(manager, "one", tmp_path / "back")
    assert scan_directory(tmp_path / "back").keys() == scan_directory(checkpoint).keys()
    for name, path in scan_directory(checkpoint).items():
        assert name.endswith("/") or (tmp_path / "back" / name).read_bytes() == path.read_bytes()
    # A directory with files needs no object of its own.
    names = {name for name, path in scan_directory(checkpoint).items() if path.is_file() or not any(path.iterdir())}
    assert {each.key for each in bucket.list("")} == {f"runs/one/{name}" for name in (*names, "metadata.json")}
    assert manager.stored().keys() == {"one"}
    delete_stored_files(manager, "one")
    assert list(bucket._client.list_blobs(bucket._name)) == []


def test_a_save_succeeds_although_requests_fail(
    spy: Tap, make_bucket: Callable[..., GCSBucket], checkpoint: Path, tmp_path: Path
) -> None:
    """One of 20 requests fails before the server sees it, and another one after the server has processed it."""
    dice = random.Random(4)

    def bad(request: Request, forward: Callable[[], Answer]) -> Answer | None:
        luck = dice.random()
        if luck < 0.05:
            return refusal(503, "busy")
        answer = forward()
        return None if luck < 0.1 else answer

    spy.rule = bad
    manager = in_small_parts(make_bucket())
    save_checkpoint(manager, "one", scan_directory(checkpoint), {"steps_completed": 3})
    restore_checkpoint(manager, "one", tmp_path / "back")
    assert (tmp_path / "back" / "larger").read_bytes() == (checkpoint / "larger").read_bytes()
    assert list(make_bucket().unfinished("")) == []


def test_a_save_that_fails_leaves_nothing(spy: Tap, make_bucket: Callable[..., GCSBucket], checkpoint: Path) -> None:
    spy.rule = lambda request, forward: (
        refusal(403, "no storage.objects.create") if b'metadata.json"' in request.body else forward()
    )
    bucket = make_bucket()
    with pytest.raises(StorageError, match=r"storage\.objects\.create"):
        save_checkpoint(in_small_parts(bucket), "one", scan_directory(checkpoint), {})
    assert list(bucket._client.list_blobs(bucket._name)) == []


def test_parts_of_a_killed_process_are_found_and_removed(make_bucket: Callable[..., GCSBucket]) -> None:
    bucket = make_bucket()
    data = b"part"
    bucket.put_part("runs/one/large", bucket.begin("runs/one/large"), 0, data, google_crc32c.value(data))
    manager = ObjectStorage(make_bucket(), "runs")
    assert manager.list("one") == {}
    assert manager.stored().keys() == {"one"}
    delete_stored_files(manager, "one")
    assert list(bucket._client.list_blobs(bucket._name)) == []


def test_damage_in_the_store_is_named(make_bucket: Callable[..., GCSBucket], checkpoint: Path, tmp_path: Path) -> None:
    bucket = make_bucket()
    manager = in_small_parts(bucket)
    save_checkpoint(manager, "one", scan_directory(checkpoint), {})
    other = b"x" * 2000
    bucket.put("runs/one/deep/large ü", other, google_crc32c.value(other))
    with pytest.raises(CheckpointCorrupt, match="deep/large ü"):
        restore_checkpoint(manager, "one", tmp_path / "back")


def test_a_bucket_that_the_original_wrote_restores(make_bucket: Callable[..., GCSBucket], tmp_path: Path) -> None:
    """The objects of such a bucket are named prefix/uuid/path, and metadata.json does not contain ``_det``."""
    bucket, uuid = make_bucket(prefix="team/x"), "0a1b2c3d-0000-4000-8000-000000000001"
    contents = {
        "state_dict.pth": b"weights",
        "code/model.py": b"pass",
        "code/": b"",
        "metadata.json": b'{"steps_completed": 7}',
    }
    for name, data in contents.items():
        bucket.put(f"team/x/{uuid}/{name}", data, google_crc32c.value(data))
    manager = ObjectStorage(bucket, "team/x")
    with pytest.warns(UserWarning, match="no checksums"):
        restore_checkpoint(manager, uuid, tmp_path / "back")
    assert (tmp_path / "back/state_dict.pth").read_bytes() == b"weights"
    assert (tmp_path / "back/code/model.py").read_bytes() == b"pass"
    with pytest.raises(CheckpointNotFound):
        restore_checkpoint(manager, uuid[:-1], tmp_path / "other")


def test_a_check_leaves_no_objects_and_finds_a_missing_bucket(make_bucket: Callable[..., GCSBucket]) -> None:
    bucket = make_bucket()
    check_storage(ObjectStorage(bucket, "runs"))
    assert list(bucket.list("")) == []
    with pytest.raises(StorageError, match="no bucket 'nowhere'"):
        check_storage(ObjectStorage(make_bucket(bucket="nowhere"), "runs"))
