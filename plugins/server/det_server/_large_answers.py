"""Limit on the memory for large answers, which clients may read slowly or not at all."""

from __future__ import annotations

from functools import partial

from starlette.types import Message, Receive, Scope, Send

from det_core.tracking.remote import MAX_BODY_BYTES
from det_server._admitted_sending import send_while_admitted
from det_server._refusal import RefusedError
from det_server._shares import Shares

MAX_ANSWERS_BYTES = 1 << 30
"""Maximum size of all large answers that are in memory at the same time. One person has at most `MAX_BODY_BYTES` of it,
which is the size of the largest one."""
LARGE_BYTES = 1 << 20
"""Size above which an answer is large."""
_PART_BYTES = 64 << 10
"""Size of the parts in which a large answer is sent, so that its end is that of its memory."""
_REFUSAL = "too many large answers are being sent; try again"


class LargeAnswers:
    """Large answers of one server that are being sent."""

    def __init__(self) -> None:
        self._shares = Shares()

    def limit(self, scope: Scope, receive: Receive, send: Send, person: str | None) -> Send:
        """Return a ``send`` that refuses a request whose large answer finds no memory.

        Args:
            scope: the request.
            receive: the function of the server.
            send: the function of the server.
            person: the person, who leaves memory to others, or None for somebody who has not logged in.
        """
        start: Message | None = None
        is_refused = False

        async def send_within_limit(message: Message) -> None:
            nonlocal start, is_refused
            if message["type"] == "http.response.start":
                start = message  # until the size of the answer is known
                return
            first, start = start, None
            body = message.get("body", b"")
            if is_refused:
                return
            if first and len(body) > LARGE_BYTES:
                try:
                    with self._shares.reserve(
                        person, len(body), each=MAX_BODY_BYTES, total=MAX_ANSWERS_BYTES, refusal=_REFUSAL
                    ):
                        await send_while_admitted(partial(_send_in_parts, first, message), scope, receive, send)
                except RefusedError as refusal:
                    is_refused = True
                    await refusal.response(scope["path"])(scope, receive, send)
                return
            if first:
                await send(first)
            await send(message)

        return send_within_limit


async def _send_in_parts(start: Message, message: Message, scope: Scope, receive: Receive, send: Send) -> None:
    await send(start)
    body = memoryview(message["body"])
    for begin in range(0, len(body), _PART_BYTES):
        more = begin + _PART_BYTES < len(body) or message.get("more_body", False)
        await send({**message, "body": bytes(body[begin : begin + _PART_BYTES]), "more_body": more})
