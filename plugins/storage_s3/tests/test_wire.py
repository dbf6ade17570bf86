"""Requests on the wire, and responses that no real server gives on demand."""

from __future__ import annotations

import hashlib
import logging
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qs, urlsplit

import google_crc32c
import pytest
from det_storage_s3._bucket import S3Bucket
from det_storage_s3._config import S3Config
from recorder import Answer, Request, Server, recording

from det_core.errors import StorageError
from det_core.interfaces.object_store import ListedObject, TransientError, UnfinishedUpload

TAG = '"' + "0" * 32 + '"'
BEGUN = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
DONE = b"<CompleteMultipartUploadResult><Key>k</Key><ETag>t</ETag></CompleteMultipartUploadResult>"
GONE = b"<Error><Code>NoSuchUpload</Code></Error>"


@pytest.fixture
def server() -> Iterator[Server]:
    with recording() as server:
        yield server


def connect(server: Server, **keys: Any) -> S3Bucket:
    ours = {"bucket": "bkt", "endpoint_url": server.endpoint, "access_key": "AK", "secret_key": "SK", "region": "r-1"}
    return S3Bucket(S3Config.model_validate({"timeout": 60, **ours, **keys}))


def crc(data: bytes) -> int:
    return int(google_crc32c.value(data))


def text(data: bytes) -> str:
    return b64encode(crc(data).to_bytes(4, "big")).decode()


def upload_in_parts(server: Server, **keys: Any) -> list[Request]:
    def answers(request: Request) -> Answer:
        if request.method == "PUT":
            return Answer(headers={"ETag": TAG})
        return Answer(BEGUN if request.url.endswith("?uploads") else DONE)

    server.answers = answers
    bucket = connect(server, **keys)
    name = bucket.begin("k")
    tags = [bucket.put_part("k", name, number, part, crc(part)) for number, part in enumerate([b"one", b"two"])]
    bucket.complete("k", name, tags, crc(b"onetwo"))
    return server.requests


def test_requests_contain_checksums_that_the_store_can_verify(server: Server) -> None:
    begin, first, second, complete = upload_in_parts(server)
    assert begin.headers["x-amz-checksum-algorithm"] == "CRC32C"
    assert begin.headers["x-amz-checksum-type"] == complete.headers["x-amz-checksum-type"] == "FULL_OBJECT"
    assert [part.headers["x-amz-checksum-crc32c"] for part in (first, second)] == [text(b"one"), text(b"two")]
    assert "expect" not in first.headers
    assert first.headers["x-amz-content-sha256"] == hashlib.sha256(b"one").hexdigest()
    assert complete.headers["x-amz-checksum-crc32c"] == text(b"onetwo")
    assert f"<ChecksumCRC32C>{text(b'two')}</ChecksumCRC32C>" in complete.body.decode()
    assert [part.url for part in (first, second)] == [f"/bkt/k?uploadId=u&partNumber={number}" for number in (1, 2)]


def test_no_checksum_is_sent_if_none_is_required(server: Server) -> None:
    requests = upload_in_parts(server, request_checksum_calculation="when_required")
    bucket = connect(server, request_checksum_calculation="when_required")
    bucket.put("k", b"one", crc(b"one"))
    server.answers = lambda request: Answer(b"<DeleteResult><Deleted><Key>k</Key></Deleted></DeleteResult>")
    bucket.delete(["k"])
    names = {name for request in requests for name in request.headers if "checksum" in name}
    assert names == set()
    assert not any(b"Checksum" in request.body for request in requests)
    assert requests[-1].headers["content-md5"] == b64encode(hashlib.md5(requests[-1].body).digest()).decode()


OPERATIONS: dict[str, Callable[[S3Bucket], object]] = {
    "put": lambda bucket: bucket.put("k", b"x", crc(b"x")),
    "get": lambda bucket: bucket.get("k", 0, 5),
    "list": lambda bucket: list(bucket.list("")),
    "delete": lambda bucket: bucket.delete(["k"]),
    "begin": lambda bucket: bucket.begin("k"),
    "put_part": lambda bucket: bucket.put_part("k", "u", 0, b"x", crc(b"x")),
    "complete": lambda bucket: bucket.complete("k", "u", [f"{TAG} {text(b'x')}"], crc(b"x")),
    "unfinished": lambda bucket: list(bucket.unfinished("")),
}


TIME = datetime(2026, 10, 21, 7, 28, tzinfo=timezone.utc)
LATER = TIME.replace(hour=8)


def pages(server: Server, kind: str, marker: str, following: str, entry: str) -> None:
    """Let the server answer a listing in three pages of one entry."""

    def answers(request: Request) -> Answer:
        query = parse_qs(urlsplit(request.url).query)
        if "uploadId" in query:
            part = f"<Part><PartNumber>1</PartNumber><LastModified>{LATER.isoformat()}</LastModified></Part>"
            return Answer(f"<ListPartsResult><IsTruncated>false</IsTruncated>{part}</ListPartsResult>".encode())
        number = int(query.get(marker, ["page + 0"])[0].removeprefix("page + "))
        more = f"<{following}>page + {number + 1}</{following}>" if number < 2 else ""
        head = f"<EncodingType>url</EncodingType><IsTruncated>{str(bool(more)).lower()}</IsTruncated>{more}"
        return Answer(f"<{kind}>{head}{entry.format(number)}</{kind}>".encode())

    server.answers = answers


def test_a_listing_contains_all_pages(server: Server) -> None:
    """XML could not contain the keys as they are."""
    key, time = "<Key>p/{}+%2B%25%C3%A9%07</Key>", f"<LastModified>{TIME.isoformat()}</LastModified>"
    entry = f"<Contents>{key}{time}<Size>7</Size></Contents>"
    pages(server, "ListBucketResult", "continuation-token", "NextContinuationToken", entry)
    assert list(connect(server).list("p/")) == [
        ListedObject(f"p/{number} +%\u00e9\x07", 7, TIME) for number in range(3)
    ]
    assert len(server.requests) == 3
    assert all("prefix=p%2F" in request.url and "encoding-type=url" in request.url for request in server.requests)


def test_all_pages_of_unfinished_uploads_are_read_with_the_times_of_their_parts(server: Server) -> None:
    entry = f"<Upload><Key>p/{{}}</Key><UploadId>u</UploadId><Initiated>{TIME.isoformat()}</Initiated></Upload>"
    pages(server, "ListMultipartUploadsResult", "key-marker", "NextKeyMarker", entry)
    assert list(connect(server).unfinished("p/")) == [
        UnfinishedUpload(f"p/{number}", "u", LATER) for number in range(3)
    ]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "answer",
    [
        Answer(),
        Answer(b"<Cut", length=1000),
        Answer(b"<Error><Code>InternalError</Code></Error>", status=500),
        Answer(b"<html>Bad Gateway</html>", status=502),
        Answer(b"<Error><Code>SlowDown</Code></Error>", status=503, headers={"Retry-After": "3"}),
        Answer(status=429),
    ],
    ids=["empty", "cut off", "500", "502", "503", "429"],
)
def test_a_bad_response_is_never_a_success(server: Server, operation: str, answer: Answer) -> None:
    server.answers = lambda request: answer
    with pytest.raises(TransientError) as caught:
        OPERATIONS[operation](connect(server))
    assert caught.value.after == (3 if answer.status == 503 else None)
    assert len(server.requests) == 1


def test_an_error_in_a_response_of_status_200_is_transient(server: Server) -> None:
    server.answers = lambda request: Answer(b"<Error><Code>InternalError</Code></Error>")
    with pytest.raises(TransientError, match="InternalError"):
        OPERATIONS["complete"](connect(server))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.integration
def test_a_server_that_does_not_answer_is_a_transient_error(server: Server, operation: str) -> None:
    never = threading.Event()
    server.answers = lambda request: Answer(until=never)
    try:
        with pytest.raises(TransientError, match="cannot reach http://127"):
            OPERATIONS[operation](connect(server).with_timeout(1))
    finally:
        never.set()


@pytest.mark.parametrize("sent", [b"", b"0123"])
def test_a_body_that_is_cut_off_is_a_transient_error(server: Server, sent: bytes) -> None:
    server.answers = lambda request: Answer(sent, 206, {"Content-Range": "bytes 0-9/10"}, length=10)
    with pytest.raises(TransientError):
        connect(server).get("k", 0, 10)


def test_a_server_that_ignores_ranges_is_a_transient_error(server: Server) -> None:
    server.answers = lambda request: Answer(b"0123456789")
    with pytest.raises(TransientError, match="from 5 on, got everything"):
        connect(server).get("k", 5, 5)


@pytest.mark.integration
def test_sending_may_take_longer_than_connecting(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """urllib3 has only one timeout for both."""
    monkeypatch.setattr("det_storage_s3._client._CONNECT_TIMEOUT", 0.3)
    server.reads_slowly = True
    server.answers = lambda request: Answer(headers={"ETag": TAG})
    data = bytes(8 << 20)
    connect(server).put("k", data, crc(data))


def test_a_store_without_delete_objects_gets_one_request_per_object(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    sorry = Answer(b"<Error><Code>NotImplemented</Code></Error>", status=501)
    server.answers = lambda request: sorry if request.method == "POST" else Answer(status=204)
    bucket = connect(server)
    with caplog.at_level(logging.WARNING, "det.storage"):
        bucket.delete(["a", "b"])
        bucket.delete(["c"])
    assert [(request.method, urlsplit(request.url).path) for request in server.requests] == [
        ("POST", "/bkt"),
        *(("DELETE", f"/bkt/{name}") for name in "abc"),
    ]
    assert len(caplog.records) == 1


def test_one_object_that_could_not_be_deleted_is_an_error(server: Server) -> None:
    result = "<DeleteResult><Deleted><Key>a</Key></Deleted><Error><Key>b</Key><Code>{}</Code></Error></DeleteResult>"
    for code, error in [("AccessDenied", StorageError), ("InternalError", TransientError)]:
        server.answers = lambda request, code=code: Answer(result.format(code).encode())
        with pytest.raises(error):
            connect(server).delete(["a", "b"])


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ({"ETag": f'"{hashlib.md5(bytes(16)).hexdigest()}-1"'}, True),
        ({"ETag": '"sealed by a key"', "x-amz-checksum-crc32c": text(b"x")}, True),
        ({"ETag": '"of an older upload-1"', "x-amz-checksum-crc32c": text(b"y")}, False),
    ],
)
def test_a_repeated_complete_succeeds_only_if_the_object_is_that_of_the_upload(
    server: Server, headers: dict[str, str], is_ours: bool
) -> None:
    server.answers = lambda request: Answer(headers=headers) if request.method == "HEAD" else Answer(GONE, 404)
    if is_ours:
        OPERATIONS["complete"](connect(server))
    else:
        with pytest.raises(StorageError, match="removed while it was in progress"):
            OPERATIONS["complete"](connect(server))


def test_a_repeated_complete_fails_if_the_etags_are_not_md5_sums(server: Server) -> None:
    server.answers = lambda request: Answer(headers={"ETag": "v1"}) if request.method == "HEAD" else Answer(GONE, 404)
    with pytest.raises(StorageError, match="removed while it was in progress"):
        connect(server).complete("k", "u", [f"v0 {text(b'x')}"], crc(b"x"))


def test_complete_fails_and_abort_succeeds_if_the_upload_is_gone(server: Server) -> None:
    server.answers = lambda request: Answer(status=404) if request.method == "HEAD" else Answer(GONE, 404)
    with pytest.raises(StorageError, match="removed while it was in progress"):
        OPERATIONS["complete"](connect(server))
    connect(server).abort("k", "u")
