"""Requests that `ObjectClient` sends itself, compared with botocore's."""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from det_storage_s3._bucket import S3Bucket
from det_storage_s3._client import create_s3_client
from det_storage_s3._config import S3Config
from recorder import Answer, Request, Server, recording

from det_core.interfaces.object_store import ListedObject, TransientError

TOKEN = "session+token/="
CALLS = {
    "get_object": {"Range": "bytes=0-9"},
    "put_object": {"Body": b"data", "ChecksumCRC32C": "AAAAAA=="},
    "upload_part": {"Body": b"data", "ChecksumCRC32C": "AAAAAA==", "UploadId": "2~a/b+c=", "PartNumber": 10},
}
KEYS = ["plain/file.pt", "a b+c%20~", "\u00e9\u4e2d\U0001f600", "?x=1&y#z", "a//b", "./..", "tab\tnew\nline", "dir/"]
LEFT_OUT = {"amz-sdk-invocation-id", "amz-sdk-request", "x-amz-checksum-mode"}
"""Headers that only botocore sends. They concern its retries and kinds of checksums that det does not store."""
OF_THE_MOMENT = {"authorization", "user-agent", "x-amz-date"}


SHA256 = hashlib.sha256(b"data").hexdigest()


class RecordingPool:
    """Pool of connections that keeps the headers of the latest request, and succeeds."""

    def urlopen(self, method: str, target: str, body: bytes, headers: dict[str, str], **_: Any) -> SimpleNamespace:
        self.headers = headers
        return SimpleNamespace(status=200, headers={})


@pytest.fixture
def server() -> Iterator[Server]:
    with recording() as server:
        server.answers = lambda request: Answer(headers={"ETag": '"t"'})
        yield server


@pytest.fixture(autouse=True)
def _a_session_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in [("ACCESS_KEY_ID", "AK"), ("SECRET_ACCESS_KEY", "SK"), ("SESSION_TOKEN", TOKEN)]:
        monkeypatch.setenv(f"AWS_{name}", value)


def config(server: Server, **keys: Any) -> S3Config:
    where = {"bucket": "bkt", "endpoint_url": server.endpoint, "region": "r-1"}
    return S3Config.model_validate({"timeout": 60, **where, **keys})


def signature(endpoint: str, request: Request) -> str:
    """Return the signature that botocore computes from the signed headers of a request."""
    signed = request.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    headers = {name: request.headers[name] for name in signed}
    arrived = AWSRequest(request.method, endpoint + request.url, headers, request.body)
    arrived.context["timestamp"] = request.headers["x-amz-date"]
    signer = S3SigV4Auth(Credentials("AK", "SK", TOKEN), "s3", "r-1")
    return str(signer.signature(signer.string_to_sign(arrived, signer.canonical_request(arrived)), arrived))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("call", CALLS)
def test_the_request_is_the_one_that_botocore_would_send(server: Server, call: str, key: str) -> None:
    client = create_s3_client(config(server), 1)
    for each in (client, client._client):
        getattr(each, call)(Bucket="bkt", Key=key, **CALLS[call])
    ours, botocore = server.requests
    assert (ours.method, ours.url, ours.body) == (botocore.method, botocore.url, botocore.body)
    expected = {name: value for name, value in botocore.headers.items() if name not in LEFT_OUT}
    assert ours.headers.keys() == expected.keys()
    assert {name for name in expected if ours.headers[name] != expected[name]} <= OF_THE_MOMENT
    assert ours.headers["x-amz-security-token"] == TOKEN
    assert ours.headers["authorization"].endswith(f"Signature={signature(server.endpoint, ours)}")


def calls_of(work: Callable[[], object]) -> int:
    count = 0

    def note(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("method", ["put", "get"])
def test_a_small_object_takes_little_work(server: Server, method: str) -> None:
    """botocore alone takes more than 8,000 events of Python's profiler for one request."""
    found = Answer(b"x", 206, {"Content-Range": "bytes 0-0/1"})
    server.answers = lambda request: found if request.method == "GET" else Answer(headers={"ETag": '"t"'})
    bucket = S3Bucket(config(server))
    work: Callable[[], object] = {"put": lambda: bucket.put("k", b"x", 0), "get": lambda: bucket.get("k", 0, 2)}[method]
    work()
    assert calls_of(work) < 3500


def test_a_long_listing_takes_little_work(server: Server) -> None:
    """botocore's parser of times alone takes 600 events of Python's profiler for each object."""
    entry = "<Contents><Key>k{}</Key><LastModified>2026-10-21T07:28:00.123Z</LastModified><Size>1</Size></Contents>"
    entries = "".join(entry.format(number) for number in range(100))
    listing = f"<ListBucketResult>{entries}<IsTruncated>false</IsTruncated></ListBucketResult>".encode()
    server.answers = lambda request: Answer(listing)
    bucket = S3Bucket(config(server))
    found = list(bucket.list(""))
    count = calls_of(lambda: list(bucket.list("")))
    assert count < 40_000
    assert found[99] == ListedObject("k99", 1, datetime(2026, 10, 21, 7, 28, 0, 123000, timezone.utc))


def test_requests_follow_a_bucket_to_another_region(server: Server) -> None:
    """botocore follows the first redirection, and later requests go to the region directly."""

    def answers(request: Request) -> Answer:
        if "/r-2/" in request.headers["authorization"]:
            return Answer(headers={"ETag": '"t"'})
        error = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>r-2</Region></Error>"
        return Answer(error, 400, {"x-amz-bucket-region": "r-2"})

    server.answers = answers
    bucket = S3Bucket(config(server))
    bucket.put("k", b"x", 0)
    before = len(server.requests)
    bucket.put("k", b"x", 0)
    assert len(server.requests) == before + 1


def test_requests_with_other_signatures_are_left_to_botocore(server: Server) -> None:
    express = create_s3_client(config(server, bucket="bkt--use1-az4--x-s3", endpoint_url=None, region="us-east-1"), 1)
    assert express._route is None


@pytest.mark.parametrize(("enabled", "digest"), [("true", SHA256), ("false", "UNSIGNED-PAYLOAD")])
def test_contents_are_signed_as_the_settings_of_aws_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enabled: str, digest: str
) -> None:
    (tmp_path / "config").write_text(f"[default]\ns3 =\n    payload_signing_enabled = {enabled}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    client = create_s3_client(S3Config(bucket="bkt", region="r-1"), 1)
    pool = RecordingPool()
    client._route = client._route._replace(pool=pool)
    client.put_object(Bucket="bkt", Key="k", Body=b"data", ChecksumCRC32C="AAAAAA==")
    assert pool.headers["X-Amz-Content-SHA256"] == digest


def test_a_proxy_is_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.endpoint)
    S3Bucket(config(server, endpoint_url="http://store.example")).put("k", b"x", 0)
    assert [request.url for request in server.requests] == ["http://store.example/bkt/k"]


def test_connections_are_kept(server: Server) -> None:
    bucket = S3Bucket(config(server))
    for _ in range(3):
        bucket.put("k", b"x", 0)
    pool = bucket._client._route.pool
    assert (pool.num_connections, pool.num_requests) == (1, 3)


def test_only_a_trusted_server_is_accepted(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = certify(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    endpoint = server.endpoint.replace("http:", "https:")
    with pytest.raises(TransientError, match="certificate"):
        S3Bucket(config(server, endpoint_url=endpoint)).put("k", b"x", 0)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    S3Bucket(config(server, endpoint_url=endpoint)).put("k", b"x", 0)
    assert len(server.requests) == 1


def certify(directory: Path) -> Path:
    """Write a key and a self-signed certificate for 127.0.0.1."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(timezone.utc)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    certificate = builder.add_extension(address, critical=True).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = directory / "certificate.pem"
    path.write_bytes(private + certificate.public_bytes(pem))
    return path
