"""Calls of the tracking store, and other requests, to a det server over HTTP.

A process has one connection for each call that it makes at the same time. A call that gets no answer is repeated for as
long as `det_core.tracking.open_store` waits for a database. A call that writes has an id, with which the store
recognizes a repetition, so that the call takes effect once (`det_core.tracking._answered_calls`). The id consists of a
lane and a number in it. A lane has one call at a time and belongs to one process.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from http.client import (
    BadStatusLine,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    IncompleteRead,
    InvalidURL,
    RemoteDisconnected,
)
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from weakref import WeakSet

from det_core.errors import ExperimentBusy, RecordNotFound, TrackingError
from det_core.interfaces.tracking import TrackingStore
from det_core.package_commands import adapt_install_command
from det_core.tracking._outage import Outage, Unavailable
from det_core.tracking.access_tokens import TOKEN_VARIABLE, find_token, forget_token, is_meant, remember_token
from det_core.tracking.remote._calls import CallIds, find_method, split_call_id
from det_core.tracking.remote._codecs import MAX_BODY_BYTES
from det_core.tracking.remote._remote_store import open_remote_store
from det_core.tracking.remote._server_address import ServerAddress, parse_server_url
from det_core.tracking.remote._versions import explain_version_mismatch
from det_core.version import __version__

CERTIFICATES_VARIABLE = "DET_MASTER_CERT_FILE"
"""Environment variable with a file of the certificates that sign the server's, in place of those of the system."""
CALL_ID = "det-call-id"
"""Header with the id of a call."""
VERSION = "det-version"
"""Header with the version of det-core, of requests and answers."""

_CONNECT_SECONDS = 10.0
_MARGIN = 30.0
"""Seconds for the way to the server and back, beyond the server's own time limit on an unavailable database."""
_AWAY = (502, 503, 504)
"""Statuses with which a server or the proxy before it asks to be called later."""
_CONTENT = (200, 206)
"""Statuses of a whole file, and of a part of one."""
_CHUNK = 1 << 20
"""Number of bytes of a file that are received at once."""
_OF_DISK = (errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)
"""Error numbers of files, which connections do not have."""
_LOST_PEER = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 15),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 30_000),
)
"""Options that detect an unreachable host within 30 s, where the system has them."""
_ERRORS: Mapping[int, type[TrackingError]] = {404: RecordNotFound, 409: ExperimentBusy}


def open_server_store(url: str, *, wait: float) -> TrackingStore:
    """Open the tracking store of a det server, as `det_core.tracking.open_store` does."""
    server = ServerConnection(url, wait=wait)
    try:
        server.get("/api/info")
    except BaseException:
        server.close()
        raise
    return open_remote_store(server.call, url=server.url, close=server.close)


class _Answer(NamedTuple):
    status: int
    version: str | None
    body: bytes


class _Target(NamedTuple):
    """File for the body of an answer."""

    file: BinaryIO
    most: int
    """Maximum size of the file in bytes, whatever the server sends."""

    def append(self, response: HTTPResponse) -> None:
        """Append the body of an answer.

        Raises:
            OSError, HTTPException: the connection broke, or the file cannot be written.
            TrackingError: the body is too large.
        """
        while chunk := response.read(_CHUNK):
            self.file.write(chunk)
            if self.file.tell() > self.most:
                raise TrackingError(f"the server sends more than the expected {self.most} bytes")
        if response.length:  # which HTTPResponse does not notice
            raise IncompleteRead(b"", response.length)


class _Lane:
    """Connection for one call at a time.

    Args:
        address: address of the server.
        limit: maximum number of seconds to wait for an answer.
        tls: settings of an encrypted connection, or None for one without encryption.
    """

    def __init__(self, address: ServerAddress, limit: float, tls: ssl.SSLContext | None) -> None:
        self._address = address
        self._limit = limit
        self._tls = tls
        self.ids = CallIds()
        self._connection: HTTPConnection | None = None
        self.unanswered = 0
        """Number of requests that may have taken effect although no answer says so."""

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, which the server may have closed since its last answer."""
        return self._connection is not None

    def exchange(
        self, verb: str, path: str, body: bytes | None, headers: Mapping[str, str], target: _Target | None = None
    ) -> _Answer:
        """Send a request and return the answer. Disconnect if this fails.

        Args:
            verb: method of HTTP.
            path: path at the server.
            body: body of the request.
            headers: headers of the request.
            target: file for the body of an answer that is no error, in place of the answer itself.

        Raises:
            OSError, HTTPException: there was no answer.
            TrackingError: the answer is too large.
        """
        try:
            connection = self._connection = self._connection or self._connect()
            self.unanswered += 1
            connection.request(verb, path, body, headers)
            response = connection.getresponse()
            received = BytesIO()
            if target is None or response.status not in _CONTENT:
                target = _Target(received, MAX_BODY_BYTES)
            target.append(response)
            answer = _Answer(response.status, response.getheader(VERSION), received.getvalue())
            self.unanswered -= answer.status not in _AWAY
        except BaseException:  # such as KeyboardInterrupt; the answer would be that of the next call
            self.disconnect()
            raise
        if response.will_close:
            self.disconnect()
        return answer

    def disconnect(self) -> None:
        """Close the connection, if there is one. The next exchange opens another one."""
        connection, self._connection = self._connection, None
        if connection:
            connection.close()

    def _connect(self) -> HTTPConnection:
        where = (self._address.host, self._address.port)
        if self._tls:
            made: HTTPConnection = HTTPSConnection(*where, timeout=_CONNECT_SECONDS, context=self._tls)
        else:
            made = HTTPConnection(*where, timeout=_CONNECT_SECONDS)
        made.connect()
        for level, name, value in _LOST_PEER:
            if hasattr(socket, name):
                made.sock.setsockopt(level, getattr(socket, name), value)
        made.sock.settimeout(self._limit)
        return made


class ServerConnection:
    """Client of one det server. Threads use different connections, and so do forked processes.

    Args:
        url: URL of the server, as for `det_core.tracking.open_store`.
        wait: number of seconds for which calls wait for a server that is unavailable.

    Raises:
        TrackingError: the URL is malformed or not encrypted.
    """

    def __init__(self, url: str, *, wait: float = 60.0) -> None:
        self.url = remember_token(url)
        self._address, _ = parse_server_url(self.url)
        self._limit = wait + _MARGIN
        self._tls = _tls_context() if self._address.scheme == "https" else None
        self._outage = Outage(wait, f"the server {self.url}")
        self._token = find_token(self.url)
        self._idle: list[_Lane] = []
        _servers.add(self)

    def call(self, method: str, body: bytes) -> bytes:
        """Have a call of the tracking store executed once, and return the answer.

        Raises:
            StoreBusy: the server was unavailable for too long. The call may have taken effect or not.
            TrackingError: the server refused the call.
        """
        headers = {"Content-Type": "application/octet-stream"}
        call_id, body = split_call_id(body)  # that of a worker, whose runner passes the call on
        with self._lane() as lane:
            if find_method(method).rights.writes:
                headers[CALL_ID] = call_id or lane.ids.next_id()
            return self._request(lane, "POST", f"/api/store/{method}", body, headers)

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON object at a path. Raises as `call`."""
        with self._lane() as lane:
            return _load(self._request(lane, "GET", path, None, {}))

    def post(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Send a JSON object and return the answer.

        The request is repeated if its answer gets lost. If it is refused then because an experiment has a runner, the
        first request has started it, and the answer is empty.

        Raises:
            ExperimentBusy: an experiment has a runner.
            RecordNotFound: there is no such record.
            StoreBusy: the server was unavailable for too long.
            TrackingError: the server refused the request.
        """
        body = json.dumps(document).encode()
        with self._lane() as lane:
            before = lane.unanswered
            try:
                return _load(self._request(lane, "POST", path, body, {"Content-Type": "application/json"}))
            except ExperimentBusy:
                if lane.unanswered > before:
                    return {}
                raise

    def download(self, path: str, target: Path, size: int) -> None:
        """Write a file that the server sends. A download that is interrupted continues where it was.

        Args:
            path: path at the server.
            target: file to create or replace.
            size: expected size of the file in bytes.

        Raises:
            OSError: the target cannot be written.
            RecordNotFound: there is no such file.
            StoreBusy: the server was unavailable for too long.
            TrackingError: the server refused the request, or its file has another size.
        """
        with self._lane() as lane, target.open("wb") as file:
            while True:
                before = file.tell()
                answer = self._outage.retry(partial(self._continue_download, lane, path, _Target(file, size)))
                if answer.status not in _CONTENT:
                    raise self._explain(answer)
                if file.tell() >= size:
                    break
                if file.tell() == before:
                    raise TrackingError(f"{self.url}{path} ended after {before} bytes; expected {size}")
        if target.stat().st_size != size:
            raise TrackingError(f"{self.url}{path} has {target.stat().st_size} bytes; expected {size}")

    def close(self) -> None:
        """Close the connections that no call uses. Later calls open new ones."""
        while self._idle:
            with suppress(IndexError):  # another thread took it
                self._idle.pop().disconnect()

    @contextmanager
    def _lane(self) -> Iterator[_Lane]:
        try:
            lane = self._idle.pop()
        except IndexError:
            lane = _Lane(self._address, self._limit, self._tls)
        try:
            yield lane
        finally:
            self._idle.append(lane)

    def _request(self, lane: _Lane, verb: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        answer = self._outage.retry(partial(self._attempt, lane, verb, path, body, headers))
        if answer.status != 200:
            raise self._explain(answer)
        return answer.body

    def _continue_download(self, lane: _Lane, path: str, target: _Target) -> _Answer:
        """Append what a file lacks, or a part of it if the connection breaks."""
        lane.disconnect()  # or a repeated attempt would not know how much there is
        begin = target.file.tell()
        try:
            return self._attempt(lane, "GET", path, None, {"Range": f"bytes={begin}-"} if begin else {}, target)
        except Unavailable:
            if target.file.tell() == begin:
                raise
            return _Answer(_CONTENT[1], None, b"")

    def _attempt(
        self,
        lane: _Lane,
        verb: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        target: _Target | None = None,
    ) -> _Answer:
        """Return the answer to a request.

        Raises:
            OSError: the file cannot be written.
            Unavailable: there was no answer. The request can be repeated.
        """
        was_connected = lane.is_connected
        token = self._token
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            answer = lane.exchange(verb, path, body, {**headers, **authorization, VERSION: __version__}, target)
        except (OSError, HTTPException) as error:
            if getattr(error, "errno", None) in _OF_DISK:
                raise
            if was_connected and target is None:  # the server closes connections that are idle for some seconds
                return self._attempt(lane, verb, path, body, headers)
            raise self._failure(error) from error
        if answer.status in _AWAY:
            raise Unavailable(f"{self.url} answers with status {answer.status}: {_message(answer)}")
        self._check_version(answer)
        if answer.status == 401 and token != self._renewed_token():
            return self._attempt(lane, verb, path, body, headers, target)
        return answer

    def _renewed_token(self) -> str | None:
        """Return the present token. A server that was started again may have saved another one."""
        forget_token(self.url)
        self._token = find_token(self.url) or self._token
        return self._token

    def _check_version(self, answer: _Answer) -> None:
        if answer.version is None:
            raise TrackingError(f"{self.url} is not a det server: its answer has no {VERSION} header; check the port")
        if mismatch := explain_version_mismatch(__version__, answer.version):
            raise TrackingError(f"{self.url}: {adapt_install_command(mismatch)}")

    def _failure(self, error: Exception) -> TrackingError:
        passes = isinstance(error, _PASSING) or getattr(error, "errno", None) == socket.EAI_AGAIN
        for kind, explanation in _PERMANENT.items():
            if isinstance(error, kind) and not passes:
                return TrackingError(f"{self.url}: {explanation} ({error})")
        return Unavailable(f"{self.url} is unavailable: {error or repr(error)}; is det server running there?")

    def _explain(self, answer: _Answer) -> TrackingError:
        message = _message(answer)
        if answer.status == 401:
            message = f"{message}; to log in: det login {self.url}"
            if os.environ.get(TOKEN_VARIABLE) and not is_meant(self.url):
                message = f"{message}, or set DET_MASTER={self.url} to use {TOKEN_VARIABLE}"
        return _ERRORS.get(answer.status, TrackingError)(f"{self.url}: {message}")


_PASSING = (RemoteDisconnected, ssl.SSLEOFError, ssl.SSLZeroReturnError)
_PERMANENT: Mapping[type[Exception], str] = {
    ssl.SSLCertVerificationError: (
        "the server's certificate cannot be verified; if your organization signs it itself, set "
        f"{CERTIFICATES_VARIABLE} to the file of its certificates"
    ),
    ssl.SSLError: "the server does not speak TLS as expected; is it https:// or http://, and the right port?",
    socket.gaierror: "there is no host of this name; check the URL",
    BadStatusLine: "the answer is not HTTP; check the port",
    InvalidURL: "the URL is malformed",
}
"""Failures that do not pass, and what to do."""


def _tls_context() -> ssl.SSLContext:
    file = os.environ.get(CERTIFICATES_VARIABLE) or None
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise TrackingError(
            f"{CERTIFICATES_VARIABLE} is {file!r}, which cannot be read ({error}); expected certificates in PEM"
        ) from None


def _load(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise TrackingError(f"the server's answer is {body[:100]!r}; expected a JSON object")
    return found


def _message(answer: _Answer) -> str:
    with suppress(TrackingError):
        return str(_load(answer.body).get("error"))
    return f"the server answers with status {answer.status}"


_servers: WeakSet[ServerConnection] = WeakSet()


def _leave_inherited() -> None:
    """Forget the connections and lanes that a forked process has from its parent, which goes on using them."""
    for server in list(_servers):
        server.close()


os.register_at_fork(after_in_child=_leave_inherited)
