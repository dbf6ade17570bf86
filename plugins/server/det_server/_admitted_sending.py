"""Sending of answers that take as long as their clients like."""

from __future__ import annotations

import time

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from det_server._accounts import ADMISSION_SECONDS


async def send_while_admitted(answer: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Send an answer in parts until its end, or that of the session or token of its caller."""
    checked_at = time.monotonic()

    async def send_part(message: Message) -> None:
        nonlocal checked_at
        if time.monotonic() - checked_at > ADMISSION_SECONDS:
            checked_at = time.monotonic()
            if not await run_in_threadpool(scope["state"]["is_admitted"]):
                whole.cancel()
                return
        await send(message)

    with anyio.CancelScope() as whole:
        await answer(scope, receive, send_part)
