"""Headers that every response has."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

from det_core.version import __version__

VERSION_HEADER = "det-version"
"""Header with the release of det-core, in requests of clients and in all responses."""
_POLICY = "content-security-policy"
"""Header that a response may set itself, to permit less."""
_CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS: Mapping[str, str] = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer, the Origin of forms would be null
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    VERSION_HEADER: __version__,
}
_TLS_ONLY = "max-age=31536000"
_FOREVER = "public, max-age=31536000, immutable"
"""Cache-Control of static files, whose URLs contain a hash."""


def add_headers(send: Send, path: str, query: bytes, *, tls_only: bool) -> Send:
    """Return a ``send`` that adds the headers to the response.

    Args:
        send: the function of the server.
        path: path of the request.
        query: query of the request.
        tls_only: whether browsers shall never connect to this host without TLS, at any of its ports.
    """
    caching = _caching(path, query)

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            own_policy = headers.get(_POLICY)
            headers.update(_HEADERS)
            headers[_POLICY] = own_policy or _CONTENT_SECURITY_POLICY
            headers["cache-control"] = caching if message["status"] in (200, 304) else "no-store"
            if tls_only:
                headers["strict-transport-security"] = _TLS_ONLY
        await send(message)

    return send_with_headers


def _caching(path: str, query: bytes) -> str:
    if not path.startswith("/static/"):
        return "no-store"
    return _FOREVER if query.startswith(b"v=") else "no-cache"
