"""Creation and configuration of boto3's client."""

from __future__ import annotations

import socket
from base64 import b64encode
from datetime import datetime
from hashlib import md5
from typing import Any, Final
from urllib.parse import urlsplit

import boto3.session
import botocore.session
import urllib3
from botocore.config import Config
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies, parse_timestamp
from pydantic import SecretStr

from det_storage_s3._config import S3Config
from det_storage_s3._object_client import ObjectClient

_CONNECT_TIMEOUT: Final = 10.0
"""Time limit for the first connection to an endpoint, in seconds."""


def create_s3_client(config: S3Config, connections: int) -> Any:
    """Return a client that several threads can share. It makes one attempt per request, because det itself retries.

    Args:
        config: the config block.
        connections: maximum number of connections that are kept open.

    Raises:
        OSError: the endpoint does not accept connections.
    """
    checksums = config.request_checksum_calculation
    options = Config(
        # urllib3 also applies the connect timeout to sending a whole part. `_probe_endpoint` has a shorter one.
        connect_timeout=config.timeout,
        read_timeout=config.timeout,
        max_pool_connections=connections,
        retries={"mode": "standard", "total_max_attempts": 1},
        tcp_keepalive=True,
        request_checksum_calculation=checksums,
        response_checksum_validation=checksums,
    )
    settings = botocore.session.get_session()
    settings.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_parse_time)
    session = boto3.session.Session(
        _plain(config.access_key),
        _plain(config.secret_key),
        region_name=config.region,
        botocore_session=settings,
    )
    client = session.client("s3", endpoint_url=config.endpoint_url, config=options)
    for operation in ("PutObject", "UploadPart"):
        client.meta.events.register_last(f"before-call.s3.{operation}", _send_at_once)
    if checksums == "when_required":
        client.meta.events.register("before-call.s3.DeleteObjects", _sum_by_md5)
    if config.endpoint_url:  # AWS needs no probe, and a gateway endpoint may admit S3 requests only
        _probe_endpoint(config.endpoint_url, min(_CONNECT_TIMEOUT, config.timeout))
    credentials = session.get_credentials()
    if credentials is None or get_environ_proxies(client.meta.endpoint_url):
        return client
    pools = urllib3.PoolManager(
        maxsize=connections,
        timeout=config.timeout,
        socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)],
        cert_reqs="CERT_REQUIRED",
        ca_certs=get_cert_path(settings.get_config_variable("ca_bundle") or True),
    )
    return ObjectClient(client, config.bucket, credentials, pools)


def _parse_time(text: str) -> datetime:
    """Parse a time in the format of listings. botocore's own parser would take most of the time of a long listing."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        header: datetime = parse_timestamp(text)
        return header


def _plain(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None


def _send_at_once(params: dict[str, Any], **_: object) -> None:
    """Change a request to send its body at once, without blocks of 16 KiB and without ``Expect: 100-continue``.

    The latter would cost a round trip.
    """
    params["headers"].pop("Expect", None)
    params["body"] = params["body"].getvalue()


def _sum_by_md5(params: dict[str, Any], **_: object) -> None:
    """Replace a request's checksum by MD5. S3 requires some checksum, and every compatible store supports MD5."""
    params["context"].pop("checksum", None)
    digest = md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = b64encode(digest).decode()


def _probe_endpoint(endpoint: str, seconds: float) -> None:
    """Connect once to find an unreachable endpoint early. Endpoints behind a proxy are skipped.

    Raises:
        OSError: there was no connection within ``seconds`` seconds.
    """
    if not get_environ_proxies(endpoint):
        url = urlsplit(endpoint)
        port = url.port or {"http": 80, "https": 443}[url.scheme]
        socket.create_connection((url.hostname or "", port), seconds).close()
