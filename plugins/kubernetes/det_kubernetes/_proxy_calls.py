"""Calls of the API of Kubernetes over the socket of ``kubectl proxy``, which adds the credentials."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

_SECONDS = 20.0
"""Time limit of a call."""


class ProxyConnection(http.client.HTTPConnection):
    """Connection to a socket of this machine.

    Args:
        path: path of the socket.
        seconds: time limit of each operation.
    """

    def __init__(self, path: str, seconds: float = _SECONDS) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def listens(path: str) -> bool:
    """Return whether somebody listens on a socket."""
    with closing(ProxyConnection(path)) as connection, suppress(OSError):
        connection.connect()
        return True
    return False


def call(
    path: str, method: str, resource: str, body: Any = None, query: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """Make a call, and return the status with the answer, which is text if it is no JSON.

    Args:
        path: path of the socket.
        method: HTTP method.
        resource: path in the API.
        body: content as JSON, or None.
        query: parameters.

    Raises:
        OSError, HTTPException: there was no answer.
    """
    with closing(ProxyConnection(path)) as connection:
        headers = {**_HEADERS, **_PATCH_HEADERS} if method == "PATCH" else _HEADERS
        connection.request(method, _target(resource, query), None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, text


def watch(path: str, resource: str, query: Mapping[str, str], seconds: float) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a watch until the server ends it.

    Args:
        path: path of the socket.
        resource: path in the API.
        query: parameters.
        seconds: time after which the server ends it.

    Raises:
        OSError, HTTPException, ValueError: it was refused, or the connection was lost.
    """
    asked = {**query, "watch": "true", "timeoutSeconds": f"{seconds:.0f}"}
    with closing(ProxyConnection(path, seconds + _SECONDS)) as connection:
        connection.request("GET", _target(resource, asked), headers=_HEADERS)
        answer = connection.getresponse()
        if answer.status != HTTPStatus.OK:
            raise http.client.HTTPException(f"status {answer.status}: {answer.read().decode('utf-8', 'replace')}")
        for line in answer:
            yield json.loads(line)


_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}
_PATCH_HEADERS = {"Content-Type": "application/merge-patch+json"}


def _target(resource: str, query: Mapping[str, str] | None) -> str:
    return quote(resource) + (f"?{urlencode(query)}" if query else "")
