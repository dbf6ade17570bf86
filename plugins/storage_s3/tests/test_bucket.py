"""Each method of the bucket, tested with Ceph."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import google_crc32c
import pytest
from det_storage_s3._bucket import S3Bucket
from det_storage_s3._config import S3Config

from det_core.errors import StorageError
from det_core.interfaces.object_store import TransientError

pytestmark = pytest.mark.integration
MAKE = Callable[..., S3Config]
FIVE = 5 << 20
"""Minimum size in bytes of every part but the last."""
NAMES = [
    "a b", "a+b", "a%20b", "100%", "\u00e9", "e\u0301", "?x=1&y#z", "'\"`", "new\nline", "cr\rx", "tab\tx", "bell\x07",
    "<&>", "\u4e2d\u6587", "\U0001f600", ".", "..", "...", "a//b", "~", "back\\slash", "*", " ", "n" * 900, "dir/",
]  # fmt: skip


def crc(data: bytes) -> int:
    return int(google_crc32c.value(data))


@pytest.fixture
def bucket(make_config: MAKE, request: pytest.FixtureRequest) -> S3Bucket:
    return S3Bucket(make_config(request_checksum_calculation=getattr(request, "param", "when_supported")))


with_and_without_checksums = pytest.mark.parametrize("bucket", ["when_supported", "when_required"], indirect=True)


def put(bucket: S3Bucket, *keys: str) -> None:
    for key in keys:
        bucket.put(key, key.encode(), crc(key.encode()))


def upload(bucket: S3Bucket, key: str, parts: list[bytes]) -> tuple[str, list[str]]:
    name = bucket.begin(key)
    return name, [bucket.put_part(key, name, number, part, crc(part)) for number, part in enumerate(parts)]


@with_and_without_checksums
def test_put_replaces_and_get_reads_ranges(bucket: S3Bucket) -> None:
    put(bucket, "k")
    bucket.put("k", b"0123456789", crc(b"0123456789"))
    wanted = [(0, 10), (3, 4), (8, 100), (0, 1)]
    assert [bucket.get("k", *each) for each in wanted] == [b"0123456789", b"3456", b"89", b"0"]
    assert [bucket.get("k", 10, 5), bucket.get("k", 99, 5)] == [b"", b""]


def test_a_missing_object_is_an_error_for_get_only(bucket: S3Bucket) -> None:
    with pytest.raises(FileNotFoundError, match="a/b"):
        bucket.get("a/b", 0, 1)
    bucket.delete(["a/b"])
    assert list(bucket.list("")) == []


@with_and_without_checksums
def test_objects_with_odd_names_can_be_read_and_deleted(bucket: S3Bucket) -> None:
    keys = [f"p/{name}" for name in NAMES]
    put(bucket, *keys)
    assert {entry.key: entry.size for entry in bucket.list("p/")} == {key: len(key.encode()) for key in keys}
    assert [bucket.get(key, 0, 10_000) for key in keys] == [key.encode() for key in keys]
    bucket.delete(keys)
    assert list(bucket.list("")) == []


def test_an_empty_directory_is_an_empty_object(bucket: S3Bucket) -> None:
    bucket.put("p/empty/", b"", 0)
    put(bucket, "p/x")
    assert [(entry.key, entry.size) for entry in bucket.list("p/")] == [("p/empty/", 0), ("p/x", 3)]
    assert bucket.get("p/empty/", 0, 10) == b""


def test_times_have_a_time_zone(bucket: S3Bucket) -> None:
    put(bucket, "k")
    [entry] = bucket.list("")
    assert abs(entry.time - datetime.now(timezone.utc)) < timedelta(seconds=60)


@with_and_without_checksums
def test_a_part_can_be_replaced_before_the_upload_is_complete(bucket: S3Bucket) -> None:
    parts = [b"a" * FIVE, b"b" * FIVE, b"end"]
    name, tags = upload(bucket, "large + 1", parts)
    tags[1] = bucket.put_part("large + 1", name, 1, b"c" * FIVE, crc(b"c" * FIVE))
    whole = parts[0] + b"c" * FIVE + parts[2]
    assert list(bucket.list("")) == []
    bucket.complete("large + 1", name, tags, crc(whole))
    assert [(entry.key, entry.size) for entry in bucket.list("")] == [("large + 1", len(whole))]
    assert bucket.get("large + 1", FIVE - 1, 2) == b"ac"
    assert bucket.get("large + 1", 0, 1 << 30) == whole
    assert list(bucket.unfinished("")) == []


@with_and_without_checksums
def test_complete_can_be_repeated(bucket: S3Bucket) -> None:
    parts = [b"a" * FIVE, b"end"]
    name, tags = upload(bucket, "k", parts)
    for _ in range(2):
        bucket.complete("k", name, tags, crc(b"".join(parts)))


def test_abort_leaves_nothing(bucket: S3Bucket) -> None:
    name, tags = upload(bucket, "k", [b"x"])
    for _ in range(2):
        bucket.abort("k", name)
    assert [*bucket.list(""), *bucket.unfinished("")] == []
    with pytest.raises((StorageError, TransientError)):  # the latter because Ceph 16 answers InternalError
        bucket.complete("k", name, tags, crc(b"x"))


def test_unfinished_uploads_are_listed_and_can_be_aborted(bucket: S3Bucket) -> None:
    keys = ["p/a b", "p/100%+", "p/new\nline", "p/\u00e9", "other"]
    began = {bucket.begin(key): key for key in keys}
    found = list(bucket.unfinished("p/"))
    assert {each.upload: each.key for each in found} == {name: key for name, key in began.items() if key != "other"}
    assert all(abs(each.time - datetime.now(timezone.utc)) < timedelta(seconds=60) for each in found)
    for each in found:
        bucket.abort(each.key, each.upload)
    assert list(bucket.unfinished("p/")) == []
