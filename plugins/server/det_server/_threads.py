"""Threads for the work of a server, apart for each kind, so that waiting work of one kind leaves others theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeVar

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

T = TypeVar("T")


class Work(Enum):
    """Kinds of work. Pages have the threads of the framework."""

    CREDENTIALS = "checks of who calls"
    LOGINS = "checks of passwords"
    READING_CALLS = "calls that read"
    WRITING_CALLS = "calls that write"
    CHANGES = "changes on pages, and starts of runners"
    DOWNLOADS = "reads of the files of checkpoints"
    DELETIONS = "deletions of files"
    CODE = "pages with the code of an experiment"
    SUBMISSIONS = "submissions of experiments"


THREADS = {
    Work.CREDENTIALS: 16,
    Work.LOGINS: 4,
    Work.READING_CALLS: 6,  # of the 8 transactions that read at a time, so that checks of who calls need not wait
    Work.WRITING_CALLS: 16,
    Work.CHANGES: 8,
    Work.DOWNLOADS: 16,
    Work.DELETIONS: 4,
    Work.CODE: 1,  # its archive is in memory as a whole
    Work.SUBMISSIONS: 1,  # unpacking one takes up to a gigabyte of memory
}
"""Number of threads of each kind of work."""


class Threads:
    """Threads of one server."""

    def __init__(self) -> None:
        self._limiters = {work: anyio.CapacityLimiter(number) for work, number in THREADS.items()}

    async def run(self, work: Work, function: Callable[..., T], *args: object) -> T:
        """Return the result of a function, which runs in a thread as soon as one of its kind is free."""
        return await anyio.to_thread.run_sync(function, *args, limiter=self._limiters[work])


def in_threads(work: Work, endpoint: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that runs in the threads of a kind of work."""

    async def run(request: Request) -> Response:
        threads: Threads = request.app.state.threads
        return await threads.run(work, endpoint, request)

    return run
