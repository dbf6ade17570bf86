"""Each method of the bucket, tested with the emulator."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import google_crc32c
import pytest
from det_storage_gcs import _bucket
from det_storage_gcs._bucket import GCSBucket

from det_core.errors import StorageError
from det_core.interfaces.object_store import ListedObject

pytestmark = [pytest.mark.usefixtures("server"), pytest.mark.integration]

NAMES = [
    "plain",
    "with space",
    "ünïcode-\N{SNOWMAN}",
    "decomposed-u\N{COMBINING DIAERESIS}",
    "a+b",
    "100%",
    "%2F",
    "#?&='\"",
    "tab\tulator",
    ".hidden",
    "deep/er/est",
    "x" * 900,
]


def put(bucket: GCSBucket, key: str, data: bytes = b"") -> None:
    bucket.put(key, data, google_crc32c.value(data))


def upload(bucket: GCSBucket, key: str, parts: list[bytes]) -> tuple[str, list[str]]:
    name = bucket.begin(key)
    return name, [
        bucket.put_part(key, name, number, part, google_crc32c.value(part)) for number, part in enumerate(parts)
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("in_parts", [False, True])
def test_an_object_of_any_name_can_be_listed_read_and_deleted(
    make_bucket: Callable[..., GCSBucket], name: str, in_parts: bool
) -> None:
    bucket, key, data = make_bucket(), f"runs/{name}", os.urandom(1000) + b"\r\n\r\n--\x00"
    if in_parts:
        begun, parts = upload(bucket, key, [data[:500], data[500:]])
        assert [(each.key, each.upload) for each in bucket.unfinished(key)] == [(key, begun)]
        bucket.complete(key, begun, parts, google_crc32c.value(data))
    else:
        put(bucket, key, data)
    (found,) = bucket.list("runs/")
    assert (found.key, found.size) == (key, len(data))
    assert abs(datetime.now(timezone.utc) - found.time) < timedelta(minutes=1)
    assert bucket.get(key, 0, len(data) + 1) == data
    assert bucket.get(key, 10, 20) == data[10:30]
    bucket.delete([key])
    assert list(bucket.list("")) == []
    with pytest.raises(FileNotFoundError, match="runs/"):
        bucket.get(key, 0, 1)


def test_an_object_is_replaced(make_bucket: Callable[..., GCSBucket]) -> None:
    bucket = make_bucket()
    put(bucket, "runs/a", b"first, and longer")
    put(bucket, "runs/a", b"second")
    assert bucket.get("runs/a", 0, 100) == b"second"
    name, parts = upload(bucket, "runs/a", [b"th", b"ird"])
    assert bucket.get("runs/a", 0, 100) == b"second"
    bucket.complete("runs/a", name, parts, google_crc32c.value(b"third"))
    assert bucket.get("runs/a", 0, 100) == b"third"


def test_directories_are_empty_objects(make_bucket: Callable[..., GCSBucket]) -> None:
    bucket = make_bucket()
    put(bucket, "runs/one/d/")
    assert [(each.key, each.size) for each in bucket.list("runs/one/")] == [("runs/one/d/", 0)]
    assert bucket.get("runs/one/d/", 0, 1) == b""


def test_listing_keeps_to_its_prefix(make_bucket: Callable[..., GCSBucket]) -> None:
    bucket = make_bucket()
    for key in ("runs/ab/x", "runs/a/x", "other/a/x"):
        put(bucket, key)
    assert [each.key for each in bucket.list("runs/a/")] == ["runs/a/x"]
    assert {each.key for each in bucket.list("runs/a")} == {"runs/a/x", "runs/ab/x"}


@pytest.mark.parametrize(("count", "at_once"), [(1, 32), (32, 32), (33, 32), (10, 3)])
def test_any_number_of_parts_becomes_one_object_and_nothing_else_stays(
    make_bucket: Callable[..., GCSBucket], count: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten parts, three at once, are composed in three steps, as more than 1024 parts are."""
    assert _bucket._COMPOSE == 32
    monkeypatch.setattr(_bucket, "_COMPOSE", at_once)
    bucket = make_bucket()
    data = [os.urandom(3) for _ in range(count)]
    name, parts = upload(bucket, "runs/big", data)
    bucket.complete("runs/big", name, parts, google_crc32c.value(b"".join(data)))
    assert bucket.get("runs/big", 0, 9999) == b"".join(data)
    assert list(bucket.unfinished("")) == []
    client = bucket._client
    assert [blob.name for blob in client.list_blobs(bucket._name)] == ["runs/big"]


def test_parts_arrive_in_any_order_and_several_times(make_bucket: Callable[..., GCSBucket]) -> None:
    bucket, data = make_bucket(), [b"aa", b"bb", b"c"]
    name = bucket.begin("runs/big")
    parts = {}
    for number in (2, 0, 1, 0):
        parts[number] = bucket.put_part("runs/big", name, number, data[number], google_crc32c.value(data[number]))
    bucket.complete("runs/big", name, [parts[0], parts[1], parts[2]], google_crc32c.value(b"aabbc"))
    assert bucket.get("runs/big", 0, 100) == b"aabbc"
    assert [blob.name for blob in bucket._client.list_blobs(bucket._name)] == ["runs/big"]


def test_parts_are_hidden_from_listings_and_reported_as_unfinished(make_bucket: Callable[..., GCSBucket]) -> None:
    for prefix, key in (("runs", "runs/one/big"), ("", "two/big")):
        bucket = make_bucket(prefix=prefix)
        name, _ = upload(bucket, key, [b"a", b"b"])
        assert list(bucket.list(prefix)) == []
        (found,) = bucket.unfinished(key[:-4])
        assert (found.key, found.upload) == (key, name)
        assert abs(datetime.now(timezone.utc) - found.time) < timedelta(minutes=1)
        assert list(bucket.unfinished("runs/other/")) == []
        bucket.abort(key, name)
        bucket.abort(key, name)
        assert list(bucket._client.list_blobs(bucket._name)) == []


def test_an_upload_of_another_host_can_be_aborted(make_bucket: Callable[..., GCSBucket]) -> None:
    name, parts = upload(make_bucket(), "runs/one/big", [b"a", b"b"])
    other = make_bucket()
    (found,) = other.unfinished("runs/one/")
    other.abort(found.key, found.upload)
    with pytest.raises(StorageError, match="vanished.*store the checkpoint again"):
        make_bucket().complete("runs/one/big", name, parts, google_crc32c.value(b"ab"))
    assert list(other.list("")) == []


def test_missing_objects_are_deleted_silently(make_bucket: Callable[..., GCSBucket]) -> None:
    bucket = make_bucket()
    put(bucket, "runs/kept", b"1")
    for number in range(bucket.batch - 1):
        put(bucket, f"runs/{number}")
    bucket.delete(["runs/never", *(f"runs/{number}" for number in range(bucket.batch - 1))])
    assert [each.key for each in bucket.list("")] == ["runs/kept"]


def test_threads_share_one_client(make_bucket: Callable[..., GCSBucket]) -> None:
    bucket = make_bucket()
    data = {f"runs/{number}": os.urandom(5000 + number) for number in range(80)}
    with ThreadPoolExecutor(bucket.connections) as pool:
        list(pool.map(lambda key: put(bucket, key, data[key]), data))
        got = dict(zip(data, pool.map(lambda key: bucket.get(key, 0, 9999), data), strict=True))
    assert got == data
    assert {each.key: each.size for each in bucket.list("")} == {key: len(value) for key, value in data.items()}
    assert all(isinstance(each, ListedObject) for each in bucket.list(""))
