"""Requests for the contents of objects that cost hardly more than plain HTTP requests.

botocore spends four fifths of its time for a small request on events, parameters, endpoint rules, headers and parsing.
Their results are the same for all objects of a bucket. Only the signature differs, which botocore's signer computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import urllib3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError
from botocore.parsers import create_parser

_HEADERS: Final = {"ChecksumCRC32C": "x-amz-checksum-crc32c", "Range": "range"}
_QUERY: Final = {"UploadId": "uploadId", "PartNumber": "partNumber"}
_RESULTS: Final = {"ContentRange": "Content-Range", "ETag": "ETag"}
_ELSEWHERE: Final = (301, 302, 307, 400)
"""Status codes of S3 that may mean that the bucket is in another region. botocore then follows to that region."""
_KEY: Final = "key"
_Answer = dict[str, Any]


class ObjectClient:
    """Client of S3 that sends ``get_object``, ``put_object`` and ``upload_part`` itself, and others through botocore.

    botocore determines the address of the bucket once. It also sends all requests if they are not signed with Signature
    Version 4, and repeats requests that reached the wrong region.

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
        """Send a GetObject request with botocore's arguments. ``Body`` of the response is a stream."""
        return self._call("GetObject", "GET", self._client.get_object, arguments)

    def put_object(self, **arguments: Any) -> _Answer:
        """Send a PutObject request with botocore's arguments."""
        return self._call("PutObject", "PUT", self._client.put_object, arguments)

    def upload_part(self, **arguments: Any) -> _Answer:
        """Send an UploadPart request with botocore's arguments."""
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
        """Let botocore prepare a request, intercept it, and return the parts that all requests share.

        Returns:
            None if requests are not signed with Signature Version 4.
        """
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
            origin=f"{url.scheme}://{url.netloc}",
            path=url.path.removesuffix(_KEY),
            region=context["signing"]["region"],
            service=context["signing"]["signing_name"],
            agent=prepared["headers"]["User-Agent"],
            config=context["client_config"],
        )


class _NotSent(NamedTuple):
    """Placeholder for the response to an intercepted request."""

    status_code: int = 200


class _Route(NamedTuple):
    """Common part of the requests for all objects of a bucket."""

    pool: urllib3.HTTPConnectionPool
    origin: str
    path: str
    region: str
    service: str
    agent: str
    config: Any

    def send(self, method: str, arguments: Mapping[str, Any], credentials: Any) -> urllib3.BaseHTTPResponse:
        """Send one request and return its response.

        Args:
            method: ``GET`` or ``PUT``.
            arguments: arguments of the operation, with the names that botocore uses.
            credentials: credentials that sign the request.
        """
        path, body = self.path + quote(arguments["Key"], safe="/~"), arguments.get("Body")
        query = [f"{_QUERY[name]}={quote(str(arguments[name]), safe='~')}" for name in _QUERY if name in arguments]
        target = f"{path}?{'&'.join(query)}" if query else path
        headers = {_HEADERS[name]: arguments[name] for name in _HEADERS if name in arguments}
        request = AWSRequest(method, f"{self.origin}{target}", headers | {"User-Agent": self.agent}, body)
        request.context["client_config"] = self.config
        S3SigV4Auth(credentials, self.service, self.region).add_auth(request)
        return self.pool.urlopen(
            method,
            target,
            body,
            dict(request.headers.items()),
            retries=False,
            redirect=False,
            assert_same_host=False,
            preload_content=method == "PUT",
            decode_content=False,
            enforce_content_length=True,
        )
