"""Reading of request bodies within limits on their size, their number and the time that they take."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from det_core.tracking.remote import MAX_BODY_BYTES, RunAccess, max_call_bytes
from det_server._refusal import RefusedError
from det_server._shares import Shares

MAX_UPLOAD_BYTES = 144 << 20
"""Maximum size of a submission in bytes, which is an archive of 96 MiB in base64 with a config."""
_DEFAULT_BYTES = 1 << 20
_LIMITS = {
    "/login": 8 << 10,
    "/api/login": 8 << 10,
    "/api/experiments": MAX_UPLOAD_BYTES,
}
"""Maximum sizes of bodies by path."""
_STORE = "/api/store/"
_BUFFERED_BYTES = 512 << 20
"""Maximum size of all bodies over `_DEFAULT_BYTES` that are in memory at the same time. One person has at most
`MAX_BODY_BYTES` of it."""
_SMALL_BUFFERED_BYTES = 128 << 20
"""Maximum size of all others over `_SHORT_BYTES` that are in memory at the same time."""
_SHORT_BYTES = 64 << 10
"""Size up to which bodies need no room among those of others, such as logins, whose number the connections limit."""
_SMALL_BUFFERED_BYTES_PER_PERSON = 32 << 20
"""Maximum size of the bodies over `_SHORT_BYTES` of one person, or of all who have not logged in, and of those up to
this size."""
_BUFFERED_BYTES_PER_RUN = 64 << 20
"""Maximum size of all bodies of the workers of a run, which leave the rest of what their user has to others of it. It
is that of two calls."""
_IDLE_SECONDS = 20.0
"""Maximum time between two parts of a body."""
_BYTES_PER_SECOND = 16 << 10
"""Minimum average rate of a body, after `_IDLE_SECONDS`."""
_REFUSAL = "the server is receiving too much at the moment; try again"
_DRAIN_SECONDS = 1.0
"""Maximum time for which the body of a refused request is read, so that its client sees the answer."""


class BodyReader:
    """Reader of bodies for one server.

    Args:
        buffered: maximum size in bytes of all large bodies that are in memory at the same time.
        small_buffered: maximum size in bytes of all others but short ones.
        idle: maximum number of seconds between two parts of a body.
    """

    def __init__(
        self,
        buffered: int = _BUFFERED_BYTES,
        small_buffered: int = _SMALL_BUFFERED_BYTES,
        idle: float = _IDLE_SECONDS,
    ) -> None:
        self._buffered, self._small_buffered = buffered, small_buffered
        self._large, self._small, self._short, self._of_runs = Shares(), Shares(), Shares(), Shares()
        self._idle = idle

    @contextmanager
    def reserve(self, length: int, person: str | None, run: RunAccess | None = None) -> Iterator[Callable[[int], None]]:
        """Return a function that reserves memory for a number of bytes of a body until the end of the block.

        The function raises RefusedError if too much is reserved already. It is called for what has arrived, because a
        client can announce what it never sends.

        Args:
            length: length that the request announces.
            person: the person, who leaves memory to others, or None for somebody who has not logged in.
            run: the run of the person whose workers send it.
        """
        shares, each, total = self._shares_of(length)
        of_run = _BUFFERED_BYTES_PER_RUN if run else math.inf
        with (
            shares.grow(person, each=each, total=total, refusal=_REFUSAL) as take,
            self._of_runs.grow(run, each=of_run, refusal=_REFUSAL) as take_of_run,
        ):

            def take_both(size: int) -> None:
                take(size)
                take_of_run(size)

            yield take_both

    def _shares_of(self, length: int) -> tuple[Shares, float, float]:
        """Return the shares for a body of a length, and their maximum of one person and of all."""
        if length > _DEFAULT_BYTES:
            return self._large, MAX_BODY_BYTES, self._buffered
        if length > _SHORT_BYTES:
            return self._small, _SMALL_BUFFERED_BYTES_PER_PERSON, self._small_buffered
        return self._short, _SMALL_BUFFERED_BYTES_PER_PERSON, math.inf

    async def read(self, receive: Receive, length: int, take: Callable[[int], None]) -> bytes:
        """Return the body.

        Args:
            receive: the function of the server.
            length: length that the request announces.
            take: function that reserves memory for what has arrived, as `reserve` returns it.

        Raises:
            RefusedError: the client is too slow, or has closed the connection, or there is no memory.
        """
        parts = []
        async for part in self._parts(receive, length):
            take(len(part))
            parts.append(part)
        return b"".join(parts)

    async def _parts(self, receive: Receive, length: int) -> AsyncIterator[bytes]:
        deadline = asyncio.get_running_loop().time() + self._idle + length / _BYTES_PER_SECOND
        more = length > 0
        while more:
            message = await self._part(receive, deadline)
            if message["type"] == "http.disconnect":
                raise RefusedError(400, "the connection was closed before the end of the request")
            yield message.get("body", b"")
            more = message.get("more_body", False)

    async def drain(self, receive: Receive, length: int) -> bool:
        """Read a small body that nobody needs, and return whether all of it came within a moment."""
        if length > _DEFAULT_BYTES:
            return False
        try:
            await asyncio.wait_for(self._skip(receive, length), _DRAIN_SECONDS)
        except (RefusedError, asyncio.TimeoutError):
            return False
        return True

    async def _skip(self, receive: Receive, length: int) -> None:
        async for _ in self._parts(receive, length):  # nobody has reserved memory for it
            pass

    async def _part(self, receive: Receive, deadline: float) -> Message:
        left = deadline - asyncio.get_running_loop().time()
        try:
            return await asyncio.wait_for(receive(), min(self._idle, left))
        except asyncio.TimeoutError:
            raise RefusedError(408, "the request came too slowly", {"connection": "close"}) from None


def checked_length(path: str, method: str, headers: Headers) -> int:
    """Return the length of the body that a request announces.

    Raises:
        RefusedError: the length is missing, not a number or too great.
    """
    if "transfer-encoding" in headers:
        message = "the request has a Transfer-Encoding; expected a Content-Length"
        raise RefusedError(411, message, {"connection": "close"})
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdecimal()):
        raise RefusedError(400, "Content-Length is not a number", {"connection": "close"})
    limit = 0 if method in ("GET", "HEAD") else _limit(path)
    if int(text) > limit:
        raise RefusedError(
            413, f"the request has {int(text)} bytes; expected at most {limit} at {path:.100}", {"connection": "close"}
        )
    return int(text)


def _limit(path: str) -> int:
    if path.startswith(_STORE):
        return max_call_bytes(path.removeprefix(_STORE))
    return _LIMITS.get(path, _DEFAULT_BYTES)


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that gives the body once, and then what the server gives."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
