"""Admission of requests to the whole application. No request is admitted by default."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from det_core.errors import DetError, RecordNotFound
from det_core.interfaces.account_records import Role
from det_core.tracking.remote import MAX_READING_BYTES, explain_version_mismatch
from det_core.version import __version__
from det_server import _credentials
from det_server._allowed_origins import AllowedHosts, is_link, is_same_origin, names_its_origin
from det_server._client_address import client_address
from det_server._http_server import HEADER_BYTES
from det_server._large_answers import LargeAnswers
from det_server._principal import Principal
from det_server._refusal import API, UNUSABLE_STORE, RefusedError
from det_server._request_bodies import BodyReader, checked_length, replay_body
from det_server._response_headers import VERSION_HEADER, add_headers
from det_server._site import Site
from det_server._threads import Threads, Work

_log = logging.getLogger("det.server")

_READING = ("GET", "HEAD")
_OPEN = {("/login", "GET"), ("/login", "HEAD"), ("/login", "POST")}
"""Paths and methods that need no login if people log in at all."""
_API_LOGIN = ("/api/login", "POST")
"""Path and method that check passwords and links themselves."""
_OPEN_FILES = "/static/"
"""Path of what the login page needs."""
_LONGEST_FILE = 100
"""Maximum length of the path of such a file. To look for one takes a time that grows with the square of the length."""
_METRICS = "/metrics"
"""Path that a program reads, which a page for logins would not help."""
_FOR_RUNS = ("/api/store/", "/api/info")
"""Paths that the workers of a run may use."""
_LONGEST_VERSION = 30


class Admission:
    """ASGI application that admits requests to another one.

    It checks the Host header, the origin, and the credentials, and limits bodies. Endpoints find the caller in
    ``request.state.principal``, the time of this check by the monotonic clock in ``request.state.admitted_at``, whether
    the credentials are still valid in ``request.state.is_admitted()``, the body in ``request.state.body``, and the
    client's address in ``request.state.address``.

    Args:
        app: application behind the admission.
        site: parts that all requests share.
        hosts: names of this server.
        threads: threads that check credentials.
        behind_proxy: whether all requests come from a reverse proxy, which reports the addresses of clients.
        cookie: name of the cookie.
    """

    def __init__(
        self, app: ASGIApp, site: Site, hosts: AllowedHosts, threads: Threads, *, behind_proxy: bool, cookie: str
    ) -> None:
        self._app = app
        self._site = site
        self._hosts = hosts
        self._threads = threads
        self._behind_proxy = behind_proxy
        self._cookie = cookie
        self._bodies = BodyReader()
        self._answers = LargeAnswers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":  # there are no web sockets
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        send = add_headers(send, scope["path"], scope["query_string"], tls_only=self._site.owns_host)
        try:
            check_head(scope)
            length = checked_length(scope["path"], scope["method"], headers)
            try:
                self._check_origin(scope, headers)
                answer = await self._authenticate(scope, headers)
            except RefusedError as refusal:
                if not await self._bodies.drain(receive, length):
                    refusal.headers = {**(refusal.headers or {}), "connection": "close"}
                raise
            if answer is not None:
                await answer(scope, receive, send)
                return
            _check_size(scope["state"].get("principal"), length)
            await self._forward(scope, headers, receive, send, length)
        except RefusedError as refusal:
            await refusal.response(scope["path"])(scope, receive, send)

    async def _forward(self, scope: Scope, headers: Headers, receive: Receive, send: Send, length: int) -> None:
        state: dict[str, Any] = scope.setdefault("state", {})
        state["address"] = client_address(scope, headers, behind_proxy=self._behind_proxy)
        if state.get("renewed_cookie"):
            send = _credentials.add_cookie(send, self._cookie, state["renewed_cookie"], secure=self._site.is_secure)
        principal: Principal | None = state.get("principal")
        # With all runs of the person, or the tokens of several could take what others need.
        person, run = (principal.name, principal.run) if principal else (None, None)
        send = self._answers.limit(scope, receive, send, person)
        if scope["method"] in _READING:
            await self._app(scope, receive, send)
            return
        with self._bodies.reserve(length, person, run) as take:
            state["body"] = await self._bodies.read(receive, length, take)
            await self._app(scope, replay_body(state["body"], receive), send)

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """Refuse requests under foreign names, and those that pages of other origins send (CSRF)."""
        host = headers.getlist("host")
        if len(host) != 1 or not self._hosts.permits_host(host[0]):
            raise RefusedError(
                403,
                f"this server is not {', '.join(host)[:100]!r}; expected {', '.join(self._hosts.names)}"
                ". Behind a reverse proxy, start it with: det server --users --proxy-host NAME",
            )
        followed = scope["method"] in _READING and is_link(headers)
        if not followed and not is_same_origin(headers, self._hosts):
            raise RefusedError(
                403, "a page of another site sent this request; open det's own page, and try again there"
            )

    async def _authenticate(self, scope: Scope, headers: Headers) -> Response | None:
        """Find the caller, or return an answer that lets the user become one.

        Raises:
            RefusedError: the request has no valid credentials.
        """
        path, query = scope["path"], scope["query_string"]
        state: dict[str, Any] = scope.setdefault("state", {})
        state["admitted_at"] = time.monotonic()
        if path.startswith(API):
            check_client_version(headers)
        if (path, scope["method"]) == _API_LOGIN:  # with whatever token the client had before
            return None
        token = _credentials.bearer_token(headers)
        if token is not None:
            state["principal"] = principal = await self._bearer(token, path)
            state["is_admitted"] = lambda: self._site.access.admit_bearer(token) == principal
            return None
        if path.startswith(API):
            raise RefusedError(401, self._how_to_log_in(), {"www-authenticate": "Bearer"})
        link = _credentials.url_token(query) if scope["method"] in _READING else None
        if link is not None and not self._site.has_users:
            return self._follow_link(link, path, query)
        return await self._cookie_session(scope, headers)

    async def _bearer(self, token: str, path: str) -> Principal:
        principal: Principal | None = await self._ask_store(self._site.access.admit_bearer, token)
        if principal is None:
            raise RefusedError(401, f"the token is not valid, or has expired; {self._how_to_log_in()}")
        if principal.run is not None and not path.startswith(_FOR_RUNS):
            raise RefusedError(403, f"the token of a run may not use {path:.100}; expected {' or '.join(_FOR_RUNS)}")
        return principal

    def _follow_link(self, token: str, path: str, query: bytes) -> Response:
        value = self._site.access.admit_link(token)
        if value is None:
            raise RefusedError(401, f"the token in the URL is not that of this server; {self._how_to_log_in()}")
        response = _credentials.without_token(path, query)
        _credentials.set_cookie(response, self._cookie, value, secure=self._site.is_secure)
        return response

    async def _cookie_session(self, scope: Scope, headers: Headers) -> Response | None:
        """Find the caller by its cookie, and refuse changes without a known origin (CSRF)."""
        path, method = scope["path"], scope["method"]
        value = _credentials.read_cookie(headers, self._cookie)
        admission = await self._ask_store(self._site.access.admit_cookie, value) if value else None
        if value and admission is not None:
            scope["state"]["principal"] = admission.principal
            scope["state"]["is_admitted"] = partial(self._has_session, value, admission.principal)
            scope["state"]["by_cookie"] = True
            scope["state"]["renewed_cookie"] = admission.cookie
        is_file = path.startswith(_OPEN_FILES) and method in _READING
        is_open = self._site.has_users and ((path, method) in _OPEN or is_file)
        if admission is None and not is_open:
            return self._send_to_login(scope, headers)
        if method not in _READING and not names_its_origin(headers):
            raise RefusedError(
                403, "the request has neither Origin nor Sec-Fetch-Site; use a recent browser or a token"
            )
        return None

    def _has_session(self, cookie: str, principal: Principal) -> bool:
        admission = self._site.access.admit_cookie(cookie, renew=False)
        return admission is not None and admission.principal == principal

    def _send_to_login(self, scope: Scope, headers: Headers) -> Response:
        path, query = scope["path"], scope["query_string"]
        if path == _METRICS:
            raise RefusedError(401, self._how_to_log_in(), {"www-authenticate": "Bearer"})
        if scope["method"] in _READING and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return _credentials.repeat_request(path, query)
        if self._site.has_users and scope["method"] in _READING and headers.get("sec-fetch-mode") in (None, "navigate"):
            target = quote(path + (f"?{query.decode('latin-1')}" if query else ""), safe="/")
            return RedirectResponse(f"/login?next={target}", 303)
        raise RefusedError(401, self._how_to_log_in())

    def _how_to_log_in(self) -> str:
        if self._site.has_users:
            return f"log in at {self._site.url}/login, or on the command line: det login {self._site.url}"
        return "open the URL that det server has printed, with its token"

    async def _ask_store(self, ask: Any, *secret: str) -> Any:
        try:
            return await self._threads.run(Work.CREDENTIALS, ask, *secret)
        except RecordNotFound:  # of the run that a token is for
            return None
        except DetError as error:
            _log.warning("cannot check a token: %s", error)
            raise RefusedError(503, UNUSABLE_STORE, {"retry-after": "5"}) from None


def check_head(scope: Scope) -> None:
    """Check the size of the path, the query and the headers of a request, which h11 limits only until all have arrived.

    Raises:
        RefusedError: they are too large.
    """
    if scope["path"].startswith(_OPEN_FILES) and len(scope["path"]) > _LONGEST_FILE:
        raise RefusedError(404, "there is no such file")
    fields = sum(len(name) + len(value) + len(b": \r\n") for name, value in scope["headers"])
    if len(scope["raw_path"]) + len(scope["query_string"]) + fields > HEADER_BYTES:
        raise RefusedError(
            431, f"the URL and the headers have more than {HEADER_BYTES >> 10} KiB", {"connection": "close"}
        )


def check_client_version(headers: Mapping[str, str]) -> None:
    """Check that the client has a compatible release. Clients that do not name theirs are admitted.

    Raises:
        RefusedError: the releases are incompatible. The message says which side to upgrade.
    """
    given = headers.get(VERSION_HEADER)
    mismatch = explain_version_mismatch(given[:_LONGEST_VERSION], __version__) if given is not None else None
    if mismatch is not None:
        raise RefusedError(426, mismatch)


def _check_size(principal: Principal | None, length: int) -> None:
    """Refuse a large body of somebody who may only read, before it is in memory."""
    if principal is not None and principal.role is Role.VIEWER and length > MAX_READING_BYTES:
        raise RefusedError(
            403,
            f"{principal.name} has the role {principal.role} here, and the request has {length} bytes; "
            f"expected at most {MAX_READING_BYTES}",
            {"connection": "close"},
        )
