"""Credentials in the URL, the cookie and the header ``Authorization`` of requests."""

from __future__ import annotations

from datetime import timedelta
from html import escape
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Message, Send

from det_server._access import LONGEST_SESSION
from det_server._refusal import RefusedError

LONGEST_COOKIE = timedelta(days=400)
"""Time for which browsers keep a cookie at most."""
MAX_FIELDS = 1000
"""Maximum number of fields of a URL."""
_TOKEN = "token"  # noqa: S105  (the name of a query parameter)


def bearer_token(headers: Headers) -> str | None:
    """Return the token of the Authorization header, or None if there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def url_token(query: bytes) -> str | None:
    """Return the token of a URL's query, or None if there is none."""
    return next((value for name, value in _parse(query) if name == _TOKEN), None)


def read_cookie(headers: Headers, name: str) -> str | None:
    """Return the value of a cookie, or None if the request does not have it."""
    for part in headers.getlist("cookie"):
        for pair in part.split(";"):
            key, separator, value = pair.strip().partition("=")
            if separator and key == name:
                return value
    return None


def set_cookie(response: Response, name: str, value: str, *, secure: bool, life: timedelta = LONGEST_SESSION) -> None:
    """Add a cookie to a response that pages of other sites cannot send and scripts cannot read."""
    response.set_cookie(
        name,
        value,
        max_age=int(life.total_seconds()),
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def add_cookie(send: Send, name: str, value: str, *, secure: bool) -> Send:
    """Return a ``send`` that adds a cookie to a response, unless the response sets or deletes one itself."""
    carrier = Response()
    set_cookie(carrier, name, value, secure=secure)

    async def send_with_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).setdefault("set-cookie", carrier.headers["set-cookie"])
        await send(message)

    return send_with_cookie


def without_token(path: str, query: bytes) -> Response:
    """Return the redirect to the same page without the token in its URL."""
    kept = [(name, value) for name, value in _parse(query) if name != _TOKEN]
    return RedirectResponse(_local_url(path, urlencode(kept)), 303)


def repeat_request(path: str, query: bytes) -> Response:
    """Return a page that loads the same URL again, now as a link of this server, so that browsers send the cookie.

    They leave out a strict cookie when the user follows a link of another site.
    """
    url = escape(_local_url(path, urlencode(_parse(query))), quote=True)
    return HTMLResponse(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>det</title>'
        f'<meta http-equiv="refresh" content="0; url={url}"><p><a href="{url}">Continue</a></p></html>\n'
    )


def _local_url(path: str, query: str) -> str:
    """Return a URL of this server. Two slashes or a backslash at its beginning would lead to another one."""
    rest = quote(path.lstrip("/\\"))
    return f"/{rest}?{query}" if query else f"/{rest}"


def _parse(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise RefusedError(400, f"the URL has more than {MAX_FIELDS} fields") from None
