"""Threads of a server, in a pool for each kind of work, so that no kind can block the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from det_core.tracking.reading_limits import limited_reading
from det_server._accounts import require_recent_admission
from det_server._client_address import client_network
from det_server._shares import Shares
from det_server._site import site_of

T = TypeVar("T")
Endpoint = Callable[[Request], Response]


class Work(Enum):
    """Kinds of work. Files and answers that are sent in parts use the threads of Starlette."""

    PAGES = "pages"
    CREDENTIALS = "checks of who calls"
    LOGINS = "checks of passwords"
    KNOWN_LOGINS = "checks of passwords of people who have logged in from there before"
    READING_CALLS = "calls that read"
    WRITING_CALLS = "calls that write"
    CODE_CALLS = "calls with code"
    CHANGES = "changes on pages, and starts of runners"
    DOWNLOADS = "reads of the files of checkpoints"
    DELETIONS = "deletions of files"
    CODE = "pages and files with the code of an experiment"
    SUBMISSIONS = "submissions of experiments"


THREADS = {
    Work.PAGES: 8,  # one person has half of them and of READING_CALLS, and CODE, and leaves two of 10 that read
    Work.CREDENTIALS: 16,
    Work.LOGINS: 4,
    Work.KNOWN_LOGINS: 2,
    Work.READING_CALLS: 6,
    Work.WRITING_CALLS: 16,
    Work.CODE_CALLS: 2,  # decoding one takes up to 1.5 gigabytes of memory, and an answer a gigabyte
    Work.CHANGES: 8,
    Work.DOWNLOADS: 16,
    Work.DELETIONS: 4,
    Work.CODE: 1,  # its archive is in memory as a whole
    Work.SUBMISSIONS: 4,  # those of two people may wait for storages that do not answer
}
"""Number of threads of each kind of work."""

MAX_REQUESTS_PER_PERSON = 200
"""Maximum number of requests of a person that run or wait for a thread, as each occupies a connection."""

MAX_READ_CHARACTERS = 128 << 20
"""Maximum number of characters that a request reads of the database at once, which take several times as many bytes."""


class Threads:
    """Threads of one server. One person gets at most half of those of each kind, but at least one."""

    def __init__(self) -> None:
        self._limiters = {work: anyio.CapacityLimiter(number) for work, number in THREADS.items()}
        self._shares = WeakValueDictionary[tuple[Work, str], asyncio.Semaphore]()
        self._requests = Shares()

    async def run(self, work: Work, function: Callable[..., T], *args: object, person: str | None = None) -> T:
        """Return the result of a function, which runs in a thread as soon as one of its kind is free.

        Args:
            work: the kind.
            function: the function.
            args: its arguments.
            person: the person who asks for it, or None if that does not matter.

        Raises:
            RefusedError: the person has too many requests.
        """
        if person is None:
            return await anyio.to_thread.run_sync(function, *args, limiter=self._limiters[work])
        share = self._shares.setdefault((work, person), asyncio.Semaphore(max(THREADS[work] // 2, 1)))
        refusal = f"you have {MAX_REQUESTS_PER_PERSON} requests under way; wait for some of them"
        with self._requests.reserve(person, each=MAX_REQUESTS_PER_PERSON, refusal=refusal):
            async with share:
                return await anyio.to_thread.run_sync(function, *args, limiter=self._limiters[work])


def in_threads(work: Work, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that runs in the threads of a kind of work."""

    async def run(request: Request) -> Response:
        return await run_endpoint(work, endpoint, request)

    return run


def in_login_threads(
    known_user: Callable[[Request], str], endpoint: Endpoint
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that checks a password. Those who have logged in from there before do not wait for strangers.

    Args:
        known_user: function that returns the name of the user of a request from such a device, or an empty string.
        endpoint: the endpoint.
    """

    async def run(request: Request) -> Response:
        threads: Threads = request.app.state.threads
        stranger = person_of(request)
        user = await threads.run(Work.CREDENTIALS, known_user, request, person=stranger)
        work, person = (Work.KNOWN_LOGINS, user) if user else (Work.LOGINS, stranger)
        return await threads.run(work, _answer, endpoint, request, person=person)

    return run


async def run_endpoint(work: Work, endpoint: Endpoint, request: Request) -> Response:
    """Return the answer of an endpoint, which runs in a thread as soon as one of its kind is free.

    Raises:
        RefusedError: the credentials of the request have ended while it waited.
    """
    threads: Threads = request.app.state.threads
    return await threads.run(work, _answer, endpoint, request, person=person_of(request))


def person_of(request: Request) -> str | None:
    """Return the name of the caller, the network of one who has not logged in, or None if there is only one user."""
    if not site_of(request).has_users:
        return None
    state = request.state
    return state.principal.name if hasattr(state, "principal") else client_network(state.address)


def _answer(endpoint: Endpoint, request: Request) -> Response:
    require_recent_admission(request)
    with limited_reading(MAX_READ_CHARACTERS):
        return endpoint(request)
