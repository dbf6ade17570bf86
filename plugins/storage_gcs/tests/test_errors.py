"""Every failure becomes `TransientError`, FileNotFoundError or an error with advice, after a single request."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from det_storage_gcs._bucket import GCSBucket

from det_core.errors import StorageError
from det_core.interfaces.object_store import TransientError
from det_core.storage import ObjectStorage, check_storage
from tests.comm.job import free_port

from .tap import Answer, Request, Tap, json_answer, refusal

SECRET = "ya29.very-secret"
CALLS: dict[str, Callable[[GCSBucket], object]] = {
    "put": lambda bucket: bucket.put("runs/a", b"x", google_crc32c.value(b"x")),
    "get": lambda bucket: bucket.get("runs/a", 0, 10),
    "list": lambda bucket: list(bucket.list("runs/")),
    "delete": lambda bucket: bucket.delete(["runs/a", "runs/b"]),
    "put_part": lambda bucket: bucket.put_part("runs/a", "u", 0, b"x", google_crc32c.value(b"x")),
    "complete": lambda bucket: bucket.complete("runs/a", "u", ["p"], 0),
    "abort": lambda bucket: bucket.abort("runs/a", "u"),
    "unfinished": lambda bucket: list(bucket.unfinished("runs/")),
}


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest) -> Callable[[GCSBucket], object]:
    return CALLS[request.param]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_temporary_errors_are_transient(
    alone: Tap, make_bucket: Callable[..., GCSBucket], call: Callable[[GCSBucket], object], status: int
) -> None:
    alone.rule = lambda request, forward: refusal(status, "try again", **{"Retry-After": "7"})
    with pytest.raises(TransientError, match="try again") as caught:
        call(make_bucket())
    assert caught.value.after == 7
    assert len(alone.requests) == 1


def test_permission_denied_names_the_permission(
    alone: Tap, make_bucket: Callable[..., GCSBucket], call: Callable[[GCSBucket], object]
) -> None:
    said = "me@x.org does not have storage.objects.create access to the Google Cloud Storage object."
    alone.rule = lambda request, forward: refusal(403, said)
    with pytest.raises(StorageError, match=r"gs://checkpoints: .*storage\.objects\.create.*add-iam-policy-binding"):
        call(make_bucket())
    assert len(alone.requests) == 1


@pytest.mark.parametrize("status", [302, 400, 418])
def test_other_errors_show_the_http_status(
    alone: Tap, make_bucket: Callable[..., GCSBucket], call: Callable[[GCSBucket], object], status: int
) -> None:
    alone.rule = lambda request, forward: Answer(status, b"<html>Strange</html>")
    with pytest.raises(StorageError, match=f"no reason given.*{status}"):
        call(make_bucket())


@pytest.mark.parametrize("name", ["put", "list", "put_part", "abort", "unfinished"])
def test_the_error_of_a_missing_bucket_says_how_to_create_it(
    server: str, make_bucket: Callable[..., GCSBucket], name: str
) -> None:
    with pytest.raises(StorageError, match="no bucket 'nowhere'.*gcloud storage buckets create gs://nowhere"):
        CALLS[name](make_bucket(bucket="nowhere"))


def test_a_missing_bucket_is_distinguished_from_a_missing_object(
    alone: Tap, make_bucket: Callable[..., GCSBucket]
) -> None:
    alone.rule = lambda request, forward: Answer(404, b"The specified bucket does not exist.")
    with pytest.raises(StorageError, match="no bucket 'checkpoints'"):
        make_bucket().get("runs/a", 0, 1)
    alone.rule = lambda request, forward: Answer(404, b"No such object: checkpoints/runs/a")
    with pytest.raises(FileNotFoundError, match="runs/a"):
        make_bucket().get("runs/a", 0, 1)


@pytest.mark.parametrize(("status", "kind"), [(403, StorageError), (429, TransientError), (503, TransientError)])
def test_one_refused_delete_of_a_batch_is_an_error(
    alone: Tap, make_bucket: Callable[..., GCSBucket], status: int, kind: type[Exception]
) -> None:
    def part(status: int, said: str) -> str:
        body = json.dumps({"error": {"code": status, "message": said}}) if said else ""
        inner = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n\r\n{body}\r\n"
        return f"--b\r\nContent-Type: application/http\r\n\r\n{inner}"

    body = part(204, "") + part(404, "No such object") + part(status, "not now") + part(204, "") + "--b--"
    alone.rule = lambda request, forward: Answer(200, body.encode(), {"Content-Type": "multipart/mixed; boundary=b"})
    with pytest.raises(kind, match="not now"):
        make_bucket().delete(["a", "b", "c", "d"])


def test_a_broken_connection_is_transient(
    alone: Tap, make_bucket: Callable[..., GCSBucket], call: Callable[[GCSBucket], object]
) -> None:
    alone.rule = lambda request, forward: None
    with pytest.raises(TransientError, match="broke the connection"):
        call(make_bucket())
    assert len(alone.requests) == 1


def test_a_response_that_is_cut_off_is_transient(
    alone: Tap, make_bucket: Callable[..., GCSBucket], call: Callable[[GCSBucket], object]
) -> None:
    alone.rule = lambda request, forward: Answer(200, b'{"items": [', missing=100)
    with pytest.raises(TransientError, match="incomplete"):
        call(make_bucket())


def test_a_malformed_response_is_transient(alone: Tap, make_bucket: Callable[..., GCSBucket]) -> None:
    alone.rule = lambda request, forward: Answer(200, b"<html>welcome to the wireless network</html>")
    for name in ("put", "list", "complete"):
        with pytest.raises(TransientError, match="incomplete"):
            CALLS[name](make_bucket())


def test_a_server_that_does_not_answer_is_given_up(
    alone: Tap, make_bucket: Callable[..., GCSBucket], call: Callable[[GCSBucket], object]
) -> None:
    never = threading.Event()

    def wait(request: Request, forward: Callable[[], Answer]) -> None:
        never.wait(300)

    alone.rule = wait
    try:
        with pytest.raises(TransientError, match="did not answer in time.*checkpoint_storage.timeout"):
            call(make_bucket(timeout=0.2))
        assert len(alone.requests) == 1
        with pytest.raises(TransientError, match="did not answer in time"):
            call(make_bucket(timeout=600).with_timeout(0.2))
    finally:
        never.set()


def test_an_unreachable_server_is_named(monkeypatch: pytest.MonkeyPatch, make_bucket: Callable[..., GCSBucket]) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
    bucket = make_bucket()
    with pytest.raises(TransientError, match=f"cannot reach {address}"):
        bucket.list("").__next__()
    with pytest.raises(StorageError, match=f"cannot reach {address}.*STORAGE_EMULATOR_HOST.*gave up"):
        check_storage(ObjectStorage(bucket, "runs").with_few_retries())


def test_the_error_of_missing_credentials_says_where_to_get_them(make_bucket: Callable[..., GCSBucket]) -> None:
    with pytest.raises(StorageError, match="gcloud auth application-default login.*GOOGLE_APPLICATION_CREDENTIALS"):
        make_bucket()


def test_a_missing_key_file_is_named(monkeypatch: pytest.MonkeyPatch, make_bucket: Callable[..., GCSBucket]) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    with pytest.raises(StorageError, match=r"/nowhere/key\.json.*gcloud auth application-default login"):
        make_bucket()


@pytest.fixture
def service_account(alone: Tap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Set up a service account whose tokens come from the tap, which is also the store, and return its private key."""
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "client_email": "trainer@x.iam.gserviceaccount.com",
        "private_key_id": "1",
        "private_key": key.decode(),
        "token_uri": f"{alone.address}/token",
    }
    path = tmp_path / "key.json"
    path.write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    monkeypatch.setenv("API_ENDPOINT_OVERRIDE", alone.address)
    return key.decode()


def give_token(request: Request, forward: Callable[[], Answer]) -> Answer | None:
    if request.path == "/token":
        return json_answer(200, {"access_token": SECRET, "expires_in": 3600, "token_type": "Bearer"})
    return None


def test_the_application_default_credentials_are_used(
    alone: Tap, service_account: str, make_bucket: Callable[..., GCSBucket]
) -> None:
    def answer(request: Request, forward: Callable[[], Answer]) -> Answer | None:
        if request.method == "GET":
            return Answer(206, b"x", {"Content-Range": "bytes 0-0/1"})
        checksum = base64.b64encode(google_crc32c.value(b"x").to_bytes(4, "big")).decode()
        return give_token(request, forward) or json_answer(200, {"name": "runs/a", "crc32c": checksum})

    alone.rule = answer
    bucket = make_bucket()
    bucket.put("runs/a", b"x", google_crc32c.value(b"x"))
    assert bucket.get("runs/a", 0, 9) == b"x"
    paths = [each.path for each in alone.requests]
    assert paths.count("/token") == 1
    assert alone.requests[-1].headers["authorization"] == f"Bearer {SECRET}"


def test_the_error_of_refused_credentials_says_how_to_log_in(
    alone: Tap, service_account: str, make_bucket: Callable[..., GCSBucket]
) -> None:
    alone.rule = lambda request, forward: give_token(request, forward) or refusal(401, "Invalid Credentials")
    with pytest.raises(StorageError, match="expired or revoked.*gcloud auth application-default login") as caught:
        make_bucket().put("runs/a", b"x", google_crc32c.value(b"x"))
    assert SECRET not in str(caught.value)


def test_the_error_of_credentials_that_cannot_be_refreshed_says_how_to_log_in(
    alone: Tap, service_account: str, make_bucket: Callable[..., GCSBucket]
) -> None:
    alone.rule = lambda request, forward: json_answer(
        400, {"error": "invalid_grant", "error_description": f"Invalid JWT {SECRET}"}
    )
    with pytest.raises(StorageError, match="could not be refreshed.*gcloud auth application-default login") as caught:
        make_bucket().list("").__next__()
    assert SECRET not in str(caught.value)


def test_a_failure_of_the_server_that_issues_credentials_is_transient(
    alone: Tap, service_account: str, make_bucket: Callable[..., GCSBucket]
) -> None:
    alone.rule = lambda request, forward: None
    with pytest.raises(TransientError, match="credentials"):
        make_bucket().list("").__next__()
