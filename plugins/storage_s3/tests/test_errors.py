"""Errors of a store appear within seconds and say what to do. Integration tests use Ceph."""

from __future__ import annotations

import errno
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from botocore import exceptions as boto
from botocore.retries.standard import ThrottledRetryableChecker, TransientRetryableChecker
from det_storage_s3._bucket import open_s3_storage
from det_storage_s3._client import create_s3_client
from det_storage_s3._config import S3Config
from det_storage_s3._errors import ErrorTranslator
from rgw import Server

from det_core import storage
from det_core.errors import StorageError
from det_core.interfaces.object_store import TransientError

ENDPOINT = "http://store.example"
SECRET = "very-secret-0123456789"


@pytest.mark.integration
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"secret_key": SECRET}, "secret key does not match.*correct checkpoint_storage.secret_key"),
        ({"access_key": "AKIDUNKNOWN"}, "does not know the access key; correct checkpoint_storage.access_key"),
        ({"bucket": "no-such-bucket"}, "bucket no-such-bucket does not exist at http://127.*aws s3 mb"),
        ({"bucket": "Not A Name"}, "'Not A Name' is not a valid bucket name"),
        ({"endpoint_url": "http://127.0.0.1:1"}, "cannot reach http://127.0.0.1:1: ConnectionRefusedError"),
        ({"endpoint_url": "http://no-such-host.invalid"}, "cannot reach http://no-such-host.invalid: gaierror"),
        ({"access_key": None, "secret_key": None}, "no credentials.*AWS_PROFILE.*type: aws configure"),
        ({"region": "not a region"}, "not a region.*correct checkpoint_storage.region"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_error_of_the_config_is_found_within_seconds(
    make_config: Callable[..., S3Config], wrong: dict[str, Any], words: str
) -> None:
    config = make_config(**wrong)
    began = time.monotonic()
    with pytest.raises(StorageError, match=words) as caught:
        storage.check_storage(open_s3_storage(config))
    assert time.monotonic() - began < 60
    for key in (config.access_key, config.secret_key):
        assert key is None or key.get_secret_value() not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.integration
def test_a_missing_permission_is_named(ceph: Server, make_config: Callable[..., S3Config]) -> None:
    name, secret = f"other{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    ceph.add_user(name, name, secret)
    config = make_config(access_key=name, secret_key=secret)
    with pytest.raises(StorageError, match=f"denied by bucket {config.bucket} at .*needs s3:PutObject"):
        storage.check_storage(open_s3_storage(config))


@pytest.mark.integration
def test_a_missing_profile_is_named(make_config: Callable[..., S3Config], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(StorageError, match="nobody.*correct AWS_PROFILE"):
        storage.check_storage(open_s3_storage(make_config(access_key=None, secret_key=None)))


@pytest.mark.integration
def test_a_check_leaves_no_objects(ceph: Server, make_config: Callable[..., S3Config]) -> None:
    config = make_config()
    storage.check_storage(open_s3_storage(config))
    assert ceph.client().list_objects_v2(Bucket=config.bucket)["KeyCount"] == 0


def answer(operation: str, code: str, status: int = 400, message: str = "", **headers: str) -> Exception:
    meta = {"HTTPStatusCode": status, "HTTPHeaders": headers}
    return boto.ClientError({"Error": {"Code": code, "Message": message}, "ResponseMetadata": meta}, operation)


def told(error: Exception) -> Exception:
    with pytest.raises(Exception, match=".*") as caught, ErrorTranslator("bkt", ENDPOINT)("the/key"):
        raise error
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        answer("PutObject", "SlowDown", 503),
        answer("PutObject", "InternalError", 500),
        answer("PutObject", "500", 500),
        answer("PutObject", "Whatever", 502),
        answer("PutObject", "Whatever", 429),
        answer("PutObject", "RequestTimeout"),
        answer("PutObject", "BadDigest"),
        answer("PutObject", "XAmzContentSHA256Mismatch"),
        answer("DeleteObjects", "InternalError", 0),
        boto.EndpointConnectionError(endpoint_url=f"{ENDPOINT}/x?X-Amz-Signature=abc", error="x"),
        boto.ReadTimeoutError(endpoint_url=ENDPOINT),
        boto.ConnectTimeoutError(endpoint_url=ENDPOINT),
        boto.ConnectionClosedError(endpoint_url=ENDPOINT),
        boto.ResponseStreamingError(error=ConnectionResetError(errno.ECONNRESET, "reset")),
        boto.IncompleteReadError(actual_bytes=1, expected_bytes=2),
        boto.FlexibleChecksumError(error_msg="differs"),
        boto.SSLError(endpoint_url=ENDPOINT, error="eof"),
        TimeoutError("timed out"),
    ],
    ids=lambda error: error.response["Error"]["Code"] if isinstance(error, boto.ClientError) else type(error).__name__,
)
def test_temporary_errors_are_transient(error: Exception) -> None:
    found = told(error)
    assert isinstance(found, TransientError)
    assert ENDPOINT in str(found)


def test_a_transient_error_has_the_delay_that_the_server_asks_for() -> None:
    for header, after in [("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("", None)]:
        found = told(answer("PutObject", "SlowDown", 503, **{"retry-after": header}))
        assert isinstance(found, TransientError)
        assert found.after == after


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (answer("PutObject", "ExpiredToken"), "expired.*aws sso login"),
        (answer("GetObject", "AccessDenied", 403), "needs s3:GetObject"),
        (answer("ListObjectsV2", "403", 403), "needs s3:ListBucket"),
        (answer("PutObject", "AuthorizationHeaderMalformed"), "another region; set checkpoint_storage.region"),
        (answer("PutObject", "301", 301, **{"x-amz-bucket-region": "eu-west-3"}), "another region, eu-west-3; set"),
        (answer("PutObject", "RequestTimeTooSkewed", 403), "clock of this host"),
        (answer("PutObject", "KeyTooLongError"), "too long.*shorten"),
        (answer("PutObject", "InvalidObjectName"), "too long.*shorten"),
        (answer("PutObject", "QuotaExceeded", 403), "raise its quota"),
        (answer("PutObject", "NotImplemented", 501), "try checkpoint_storage.request_checksum_calculation"),
        (answer("ListObjectsV2", "404", 404), "does not speak S3"),
        (answer("PutObject", "Odd", 400, "so and so"), "refuses PutObject on bucket bkt: Odd: so and so"),
        (boto.NoCredentialsError(), "no credentials for http://store.example"),
        (boto.PartialCredentialsError(provider="env", cred_var="x"), "no credentials"),
        (boto.UnauthorizedSSOTokenError(), "aws sso login"),
        (boto.InvalidRegionError(region_name="x y"), "correct checkpoint_storage.region"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_error_says_what_the_user_can_do(error: Exception, words: str) -> None:
    with pytest.raises(StorageError, match=words):
        raise told(error)


def test_a_missing_object_is_a_file_not_found_error() -> None:
    assert isinstance(told(answer("GetObject", "NoSuchKey", 404)), FileNotFoundError)


def test_other_errors_are_not_translated() -> None:
    with pytest.raises(ZeroDivisionError), ErrorTranslator("bkt", ENDPOINT)("k"):
        raise ZeroDivisionError


THROTTLED = [*ThrottledRetryableChecker._THROTTLED_ERROR_CODES, *TransientRetryableChecker._TRANSIENT_ERROR_CODES]
KMS = ["ThrottlingException", "DependencyTimeoutException", "KMSInternalException", "KeyUnavailableException"]


@pytest.mark.parametrize("code", [*THROTTLED, *(f"KMS.{name}" for name in KMS)])
def test_errors_that_botocore_treats_as_throttling_are_transient(code: str) -> None:
    """Such errors are transient even if their HTTP status is 400, also those of the service that encrypts objects."""
    assert isinstance(told(answer("PutObject", code)), TransientError)


@pytest.mark.parametrize("endpoint", [None, "http://store.example:9"])
def test_only_a_configured_endpoint_is_probed(monkeypatch: pytest.MonkeyPatch, endpoint: str | None) -> None:
    """A subnet that reaches S3 only through a gateway endpoint cannot reach the global endpoint of AWS."""
    asked: list[str] = []

    def unreachable(address: tuple[str, int], seconds: float) -> None:
        asked.append(address[0])
        raise OSError("unreachable")

    monkeypatch.setattr("socket.create_connection", unreachable)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    keys = {"access_key": "AK", "secret_key": SECRET, "region": "eu-west-1"}
    config = S3Config.model_validate({"bucket": "bkt", "endpoint_url": endpoint, **keys})
    if endpoint is None:
        create_s3_client(config, 1)
    else:
        with pytest.raises(OSError, match="unreachable"):
            create_s3_client(config, 1)
    assert asked == ([] if endpoint is None else ["store.example"])
