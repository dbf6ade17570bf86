"""Properties of requests that the emulator does not check, such as preconditions, paging and their number."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import google_crc32c
import pytest
from det_storage_gcs._bucket import GCSBucket

from det_core.errors import StorageError
from det_core.interfaces.object_store import TransientError

from .tap import Answer, Request, Tap, json_answer, refusal

DATA = b"some data"
CRC = google_crc32c.value(DATA)
ENCODED = "rPZE1w=="


def upload(bucket: GCSBucket, key: str, parts: list[bytes]) -> tuple[str, list[str]]:
    name = bucket.begin(key)
    return name, [
        bucket.put_part(key, name, number, part, google_crc32c.value(part)) for number, part in enumerate(parts)
    ]


def composed(spy: Tap) -> list[Request]:
    return [each for each in spy.requests if each.path.endswith("/compose")]


def test_put_sends_one_request_with_the_checksum(spy: Tap, make_bucket: Callable[..., GCSBucket]) -> None:
    make_bucket().put("runs/a", DATA, CRC)
    (request,) = spy.requests
    assert request.query["uploadType"] == "multipart"
    assert b'"crc32c": "%s"' % ENCODED.encode() in request.body
    assert DATA in request.body


def test_a_whole_part_goes_in_one_request(spy: Tap, make_bucket: Callable[..., GCSBucket]) -> None:
    bucket = make_bucket()
    data = bytes(bucket.part_size)
    bucket.put_part("runs/a", bucket.begin("runs/a"), 0, data, google_crc32c.value(data))
    assert len(spy.requests) == 1


def test_data_that_was_corrupted_in_transit_is_refused_by_the_server_or_detected_afterwards(
    spy: Tap, make_bucket: Callable[..., GCSBucket]
) -> None:
    def flip(request: Request, forward: Callable[[], Answer]) -> Answer:
        return spy.forward(
            Request(request.method, request.target, request.headers, request.body.replace(DATA, b"SOME data"))
        )

    spy.rule = flip
    with pytest.raises(TransientError, match="doesn't match"):
        make_bucket().put("runs/a", DATA, CRC)
    spy.rule = lambda request, forward: json_answer(200, {"name": "runs/a", "crc32c": "AAAAAA=="})
    with pytest.raises(TransientError, match="corrupted"):
        make_bucket().put("runs/a", DATA, CRC)


def test_parts_are_written_once_under_new_names(spy: Tap, make_bucket: Callable[..., GCSBucket]) -> None:
    bucket = make_bucket()
    name = bucket.begin("runs/a")
    first, second = (bucket.put_part("runs/a", name, 0, DATA, CRC) for _ in range(2))
    assert first != second
    assert [each.query["ifGenerationMatch"] for each in spy.requests] == ["0", "0"]


def test_a_part_that_already_exists_counts_as_written(spy: Tap, make_bucket: Callable[..., GCSBucket]) -> None:
    def twice(request: Request, forward: Callable[[], Answer]) -> Answer:
        forward()
        return refusal(412, "At least one of the pre-conditions you specified did not hold.")

    bucket = make_bucket()
    name = bucket.begin("runs/a")
    spy.rule = twice
    part = bucket.put_part("runs/a", name, 0, DATA, CRC)
    spy.rule = lambda request, forward: forward()
    bucket.complete("runs/a", name, [part], CRC)
    assert bucket.get("runs/a", 0, 100) == DATA


@pytest.mark.parametrize("exists", [False, True])
def test_an_object_of_parts_replaces_only_the_object_that_was_there_before(
    spy: Tap, make_bucket: Callable[..., GCSBucket], exists: bool
) -> None:
    bucket = make_bucket()
    if exists:
        bucket.put("runs/a", b"old", google_crc32c.value(b"old"))
    blob = bucket._bucket.get_blob("runs/a")
    name, parts = upload(bucket, "runs/a", [DATA[:4], DATA[4:]])
    bucket.complete("runs/a", name, parts, CRC)
    hidden, published = composed(spy)
    assert hidden.query["ifGenerationMatch"] == "0"
    assert [each["name"] for each in json.loads(hidden.body)["sourceObjects"]] == parts
    assert published.query["ifGenerationMatch"] == (str(blob.generation) if blob else "0")
    assert published.path.endswith("/o/runs/a/compose")


def test_wrong_parts_never_become_visible(spy: Tap, make_bucket: Callable[..., GCSBucket]) -> None:
    bucket = make_bucket()
    name, parts = upload(bucket, "runs/a", [DATA[:4], DATA[4:]])
    with pytest.raises(StorageError, match="checksum of the whole"):
        bucket.complete("runs/a", name, parts[::-1], CRC)
    assert list(bucket.list("")) == []
    assert len(composed(spy)) == 1


def test_after_a_lost_response_the_object_is_not_composed_again(
    spy: Tap, make_bucket: Callable[..., GCSBucket]
) -> None:
    def lose(request: Request, forward: Callable[[], Answer]) -> Answer | None:
        answer = forward()
        return None if request.path.endswith("/o/runs/a/compose") else answer

    bucket = make_bucket()
    name, parts = upload(bucket, "runs/a", [DATA[:4], DATA[4:]])
    spy.rule = lose
    with pytest.raises(TransientError):
        bucket.complete("runs/a", name, parts, CRC)
    before = len(composed(spy))
    bucket.complete("runs/a", name, parts, CRC)
    bucket.complete("runs/a", name, parts, CRC)
    assert len(composed(spy)) == before
    assert bucket.get("runs/a", 0, 100) == DATA
    assert list(bucket.unfinished("")) == []


def test_an_object_that_appeared_late_is_found_by_the_next_attempt(
    spy: Tap, make_bucket: Callable[..., GCSBucket]
) -> None:
    """The precondition fails, because the object appeared after the client had looked for it."""

    def late(request: Request, forward: Callable[[], Answer]) -> Answer:
        answer = forward()
        published = request.path.endswith("/o/runs/a/compose")
        return refusal(412, "conditionNotMet") if published else answer

    bucket = make_bucket()
    name, parts = upload(bucket, "runs/a", [DATA[:4], DATA[4:]])
    spy.rule = late
    with pytest.raises(TransientError, match="another request"):
        bucket.complete("runs/a", name, parts, CRC)
    bucket.complete("runs/a", name, parts, CRC)
    assert [each.key for each in bucket.list("")] == ["runs/a"]


def test_another_attempt_repeats_only_the_composition_that_failed(
    spy: Tap, make_bucket: Callable[..., GCSBucket]
) -> None:
    bucket, data = make_bucket(), [bytes([number]) for number in range(100)]
    name, parts = upload(bucket, "runs/a", data)
    failed = iter([False, True])
    spy.rule = lambda request, forward: (
        refusal(503, "busy") if request.path.endswith("/compose") and next(failed, False) else forward()
    )
    with pytest.raises(TransientError):
        bucket.complete("runs/a", name, parts, google_crc32c.value(b"".join(data)))
    bucket.complete("runs/a", name, parts, google_crc32c.value(b"".join(data)))
    assert bucket.get("runs/a", 0, 1000) == b"".join(data)
    assert len(composed(spy)) == 4 + 1 + 1 + 1  # groups of up to 32, the repeated group, the whole, its copy


def test_a_listing_requests_all_pages(alone: Tap, make_bucket: Callable[..., GCSBucket]) -> None:
    time = "2026-11-20T10:00:00.000Z"

    def pages(request: Request, forward: Callable[[], Answer]) -> Answer:
        page = int(request.query.get("pageToken", 0))
        item = {"name": f"runs/{page}", "size": "7", "timeCreated": time}
        return json_answer(200, {"items": [item], **({"nextPageToken": str(page + 1)} if page < 3 else {})})

    alone.rule = pages
    assert [each.key for each in make_bucket().list("runs/")] == [f"runs/{page}" for page in range(4)]
    assert [each.query.get("pageToken") for each in alone.requests] == [None, "1", "2", "3"]
    assert all("nextPageToken" in each.query["fields"] for each in alone.requests)
    assert all(each.query["prefix"] == "runs/" for each in alone.requests)


def test_a_batch_of_deletes_is_one_request(spy: Tap, make_bucket: Callable[..., GCSBucket]) -> None:
    bucket = make_bucket()
    bucket.delete([f"runs/{number}" for number in range(bucket.batch)])
    (request,) = spy.requests
    assert request.path == "/batch/storage/v1"
    assert request.body.count(b"DELETE ") == bucket.batch == 100


def test_get_requests_only_its_range(spy: Tap, make_bucket: Callable[..., GCSBucket]) -> None:
    bucket = make_bucket()
    bucket.put("runs/a", DATA, CRC)
    assert bucket.get("runs/a", 2, 3) == DATA[2:5]
    assert spy.requests[-1].headers["range"] == "bytes=2-4"
    spy.rule = lambda request, forward: Answer(416, b"The requested range cannot be satisfied.")
    assert bucket.get("runs/a", 100, 1) == b""


def test_threads_keep_their_connections(
    spy: Tap, make_bucket: Callable[..., GCSBucket], caplog: pytest.LogCaptureFixture
) -> None:
    bucket = make_bucket()
    bucket.put("runs/a", DATA, CRC)
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(bucket.connections) as pool:
        list(pool.map(lambda _: bucket.get("runs/a", 0, 9), range(5 * bucket.connections)))
    assert spy.connections <= bucket.connections
    assert not caplog.records
