"""Requests for the contents of objects at the cost of an HTTP request.

botocore spends four fifths of its time for a small request on events, parameters, endpoint rules, headers and parsing.
Their results are the same for all objects of a bucket. Only the signature differs.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import urllib3
from botocore.exceptions import ClientError
from botocore.parsers import create_parser

_HEADERS: Final = {"ChecksumCRC32C": "x-amz-checksum-crc32c", "Range": "range"}
_QUERY: Final = {"UploadId": "uploadId", "PartNumber": "partNumber"}
_RESULTS: Final = {"ContentRange": "Content-Range", "ETag": "ETag"}
_ELSEWHERE: Final = (301, 302, 307, 400)
"""Status codes by which S3 may say that the bucket is in another region, where botocore follows."""
_KEY: Final = "key"
_Answer = dict[str, Any]


class ObjectClient:
    """botocore's client of S3, but ``get_object``, ``put_object`` and ``upload_part`` are sent without botocore.

    botocore says once where the bucket is. It sends all requests itself if they are not to be signed by Signature
    Version 4, and repeats those that come to the wrong region.

    Args:
        client: the client of botocore.
        bucket: the bucket of all objects.
        credentials: the credentials of the client.
        pools: connections to any host.
    """

    def __init__(self, client: Any, bucket: str, credentials: Any, pools: urllib3.PoolManager) -> None:
        self._client, self._bucket = client, bucket
        self._credentials, self._pools = credentials, pools
        self._route = self._find_route()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_object(self, **arguments: Any) -> _Answer:
        return self._call("GetObject", "GET", self._client.get_object, arguments)

    def put_object(self, **arguments: Any) -> _Answer:
        return self._call("PutObject", "PUT", self._client.put_object, arguments)

    def upload_part(self, **arguments: Any) -> _Answer:
        return self._call("UploadPart", "PUT", self._client.upload_part, arguments)

    def _call(self, operation: str, method: str, by_botocore: Callable[..., _Answer], arguments: _Answer) -> _Answer:
        if self._route is None:
            return by_botocore(**arguments)
        response = self._route.send(method, arguments, self._credentials.get_frozen_credentials())
        if response.status in _ELSEWHERE:
            response.drain_conn()
            answer = by_botocore(**arguments)
            self._route = self._find_route()
            return answer
        if response.status >= 300:
            failure = {"status_code": response.status, "headers": response.headers, "body": response.data}
            raise ClientError(create_parser("rest-xml").parse(failure, None), operation)
        found = {name: response.headers[header] for name, header in _RESULTS.items() if header in response.headers}
        return {"Body": response, **found}

    def _find_route(self) -> _Route | None:
        """Have botocore prepare a request, and keep it instead of sending it."""
        prepared: dict[str, Any] = {}

        def keep(params: Mapping[str, Any], context: Mapping[str, Any], **_: object) -> tuple[_NotSent, _Answer]:
            prepared.update(params, context=context)
            return _NotSent(), {}

        events, event = self._client.meta.events, "before-call.s3.HeadObject"
        events.register_last(event, keep)
        try:
            self._client.head_object(Bucket=self._bucket, Key=_KEY)
        finally:
            events.unregister(event, keep)
        url, context = urlsplit(prepared["url"]), prepared["context"]
        if context["auth_type"] != "v4":
            return None
        return _Route(
            pool=self._pools.connection_from_url(prepared["url"]),
            host=url.netloc,
            path=url.path.removesuffix(_KEY),
            region=context["signing"]["region"],
            service=context["signing"]["signing_name"],
            agent=prepared["headers"]["User-Agent"],
        )


class _NotSent(NamedTuple):
    """Stands for botocore's response."""

    status_code: int = 200


class _Route(NamedTuple):
    """Common part of the requests for all objects of a bucket."""

    pool: urllib3.HTTPConnectionPool
    host: str
    path: str
    region: str
    service: str
    agent: str

    def send(self, method: str, arguments: Mapping[str, Any], credentials: Any) -> urllib3.BaseHTTPResponse:
        """Send one request. Its arguments are named as botocore names them."""
        path, body = self.path + quote(arguments["Key"], safe="/~"), arguments.get("Body")
        query = [f"{_QUERY[name]}={quote(str(arguments[name]), safe='~')}" for name in _QUERY if name in arguments]
        headers = {_HEADERS[name]: arguments[name] for name in _HEADERS if name in arguments}
        return self.pool.urlopen(
            method,
            f"{path}?{'&'.join(query)}" if query else path,
            body,
            self._signed(f"{method}\n{path}\n{'&'.join(sorted(query))}", headers, body or b"", credentials),
            retries=False,
            redirect=False,
            assert_same_host=False,
            preload_content=method == "PUT",
            decode_content=False,
            enforce_content_length=True,
        )

    def _signed(self, request: str, headers: dict[str, str], body: bytes, credentials: Any) -> dict[str, str]:
        """Return the headers with a signature.

        See https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html.
        """
        now, digest = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), sha256(body).hexdigest()
        headers |= {"host": self.host, "x-amz-content-sha256": digest, "x-amz-date": now}
        if credentials.token:
            headers["x-amz-security-token"] = credentials.token
        names = sorted(headers)
        signed = ";".join(names)
        canonical = "\n".join([request, *(f"{name}:{headers[name]}" for name in names), "", signed, digest])
        scope = f"{now[:8]}/{self.region}/{self.service}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        signature = _mac(_signing_key(credentials.secret_key, scope), text).hex()
        authorization = f"Credential={credentials.access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"
        return {**headers, "user-agent": self.agent, "authorization": f"AWS4-HMAC-SHA256 {authorization}"}


@lru_cache(maxsize=4)
def _signing_key(secret: str, scope: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = _mac(key, part)
    return key


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
