"""Rules of admission and its parts at their boundaries, without a request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakSet

import pytest
from det_server._admission import check_client_version, check_head
from det_server._allowed_origins import host_in_url, is_link
from det_server._client_address import client_address
from det_server._credentials import bearer_token, read_cookie, url_token
from det_server._http_server import HEADER_BYTES
from det_server._principal import Principal
from det_server._refusal import RefusedError
from det_server._request_bodies import BodyReader, checked_length, replay_body
from det_server._response_headers import add_headers
from starlette.datastructures import Headers

from det_core.interfaces.account_records import Role
from det_core.tracking.remote import MAX_BODY_BYTES, RunAccess

from .serving import ServedSite, local_access, site_without_server

MIB, SHORT = 1 << 20, 64 << 10


# Lengths of heads and bodies


@pytest.mark.parametrize("part", ["raw_path", "query_string", "headers"])
def test_the_url_and_the_headers_have_a_length(part: str) -> None:
    """The library for HTTP limits only heads that have not arrived completely."""
    scope: dict[str, Any] = {"path": "/", "raw_path": b"/", "query_string": b"", "headers": [(b"a", b"b")] * 10_000}
    check_head(scope)
    scope[part] = [(b"a", b"b")] * 11_000 if part == "headers" else b"x" * 6000
    with pytest.raises(RefusedError, match="more than 64 KiB") as refused:
        check_head(scope)
    assert (refused.value.status, refused.value.headers) == (431, {"connection": "close"})


def test_long_paths_of_files_are_not_looked_up() -> None:
    scope = {"path": "/static/vendor/uPlot.iife.min.js", "raw_path": b"/", "query_string": b"", "headers": []}
    check_head(scope)
    with pytest.raises(RefusedError, match="no such file") as refused:
        check_head({**scope, "path": "/static/" + "a/" * 50})
    assert refused.value.status == 404


def test_a_request_with_a_large_head_is_refused(local: ServedSite) -> None:
    assert local.client.get("/login", X_Large="x" * HEADER_BYTES).status == 431


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/models", MIB),
        ("/login", 8 << 10),
        ("/login/", MIB),
        ("/api/login", 8 << 10),
        ("/api/experiments", 144 * MIB),
        ("/api/experiments/1/start", MIB),
        ("/api/store/create_experiment", MAX_BODY_BYTES),
        ("/api/store/experiment", MIB),
        ("/api/storeroom", MIB),
    ],
)
def test_a_body_may_have_the_length_of_its_path(path: str, limit: int) -> None:
    assert checked_length(path, "POST", Headers({"content-length": str(limit)})) == limit
    with pytest.raises(RefusedError, match=f"{limit + 1} bytes; expected at most {limit}") as refused:
        checked_length(path, "POST", Headers({"content-length": str(limit + 1)}))
    assert refused.value.status == 413


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_requests_that_read_have_no_body(method: str) -> None:
    assert checked_length("/models", method, Headers({})) == 0
    with pytest.raises(RefusedError, match="at most 0"):
        checked_length("/models", method, Headers({"content-length": "1"}))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"transfer-encoding": "chunked", "content-length": "1"}, 411),
        ({"content-length": "-1"}, 400),
        ({"content-length": "x"}, 400),
        ({"content-length": ""}, 400),
        ({"content-length": "٣"}, 400),
    ],
    ids=str,
)
def test_lengths_are_plain_numbers(headers: dict[str, str], status: int) -> None:
    with pytest.raises(RefusedError) as refused:
        checked_length("/models", "POST", Headers(raw=[(k.encode(), v.encode()) for k, v in headers.items()]))
    assert refused.value.status == status
    assert refused.value.headers == {"connection": "close"}


def test_a_refused_request_is_read_if_its_body_is_small(local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is still sending would not see the answer."""
    lengths: list[int] = []

    async def skip(self: BodyReader, receive: Any, length: int) -> None:
        lengths.append(length)

    monkeypatch.setattr(BodyReader, "_skip", skip)
    for length in (MIB, MIB + 1):
        headers = {"Content-Length": str(length)}
        assert local.client.request("POST", "/api/experiments", b"", headers).status == 401
    assert lengths == [MIB]


# Reading of bodies


def receiver(*messages: Any) -> Callable[[], Awaitable[Any]]:
    """Return a ``receive`` that gives messages, and then waits."""
    left = iter(messages)

    async def receive() -> Any:
        return next(left, None) or await asyncio.Event().wait()

    return receive


def part(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def read_body(reader: BodyReader, receive: Callable[[], Awaitable[Any]], length: int) -> bytes:
    with reader.reserve(length, "ann") as take:
        return asyncio.run(reader.read(receive, length, take))


def test_a_body_is_read_in_parts() -> None:
    reader = BodyReader()
    assert read_body(reader, receiver(part(b"a"), part(b"b"), part(b"c", False), part(b"d")), 3) == b"abc"
    assert read_body(reader, receiver(), 0) == b"", "nothing is awaited"


def test_the_body_of_a_refused_request_is_not_kept() -> None:
    """Strangers could fill the memory with it, because nothing of it is reserved."""

    class Part(bytearray):
        __hash__ = object.__hash__

    kept: WeakSet[Part] = WeakSet()
    following = iter(range(5))

    async def receive() -> Any:
        assert len(kept) <= 1, "only the one before"
        kept.add(sent := Part(b"x"))
        return {"type": "http.request", "body": sent, "more_body": next(following) < 4}

    assert asyncio.run(BodyReader().drain(receive, 5))


def test_a_closed_connection_is_no_body() -> None:
    with pytest.raises(RefusedError, match="closed before the end") as refused:
        read_body(BodyReader(), receiver(part(b"a"), {"type": "http.disconnect"}), 3)
    assert refused.value.status == 400


def test_a_part_that_never_comes_is_given_up() -> None:
    with pytest.raises(RefusedError, match="too slowly") as refused:
        read_body(BodyReader(idle=0.05), receiver(part(b"a")), 1000)
    assert refused.value.status == 408


def test_a_body_has_a_minimum_rate() -> None:
    """A client that sends a byte from time to time is dropped, too."""
    sent: list[bytes] = []

    async def drip() -> Any:
        await asyncio.sleep(0.01)
        sent.append(b"x")
        return part(b"x")

    with pytest.raises(RefusedError, match="too slowly"):
        read_body(BodyReader(idle=0.05), drip, 1000)
    assert sent


@contextmanager
def held(reader: BodyReader, length: int, person: str | None) -> Iterator[None]:
    """Hold a whole body in memory during the block."""
    with reader.reserve(length, person) as take:
        take(length)
        yield


def test_reserved_memory_is_free_again_after_an_error() -> None:
    reader = BodyReader(small_buffered=MIB)
    with pytest.raises(KeyError), held(reader, MIB, "ann"):
        raise KeyError
    with held(reader, MIB, "ann"), pytest.raises(RefusedError) as refused, held(reader, SHORT + 1, "bob"):
        pass
    assert (refused.value.status, refused.value.headers) == (503, {"retry-after": "1"})


@pytest.mark.parametrize("length", [MIB, 2 * MIB])
def test_only_what_has_arrived_takes_memory(length: int) -> None:
    """Otherwise a few people keep all others from sending, with lengths that they only announce."""
    reader = BodyReader(buffered=length, small_buffered=length)
    with reader.reserve(length, "ann") as take:
        take(1)
        assert len(read_body(reader, receiver(part(b"x" * (length - 1), False)), length)) == length - 1
        with pytest.raises(RefusedError, match="try again"):
            read_body(reader, receiver(part(b"x" * (length - 1)), part(b"x", False)), length)


def test_short_bodies_need_no_memory_of_others() -> None:
    """A login or a heartbeat must be possible at any time."""
    reader = BodyReader(small_buffered=MIB)
    with held(reader, MIB, "ann"), held(reader, SHORT, None), held(reader, SHORT, "ann"):
        pass


def test_large_bodies_leave_memory_for_small_ones() -> None:
    large = 2 << 20
    reader = BodyReader(buffered=large)
    with held(reader, large, "ann"):
        with pytest.raises(RefusedError, match="try again"), held(reader, large, "bob"):
            pass
        with held(reader, MIB, "bob"):
            pass


@pytest.mark.parametrize(("length", "number"), [(MAX_BODY_BYTES, 1), (MIB, 32), (SHORT, 512)])
def test_one_person_leaves_memory_to_others(length: int, number: int) -> None:
    reader = BodyReader(buffered=3 * MAX_BODY_BYTES)
    for _ in range(2):  # the memory is free again afterwards
        with ExitStack() as bodies:
            for _ in range(number):
                bodies.enter_context(held(reader, length, "ann"))
            with pytest.raises(RefusedError, match="try again"), held(reader, length, "ann"):
                pass
            with held(reader, length, "bob"):
                pass


def test_a_run_leaves_memory_to_others_of_its_user() -> None:
    reader, run, other = BodyReader(), RunAccess(1, 1, 1), RunAccess(1, 2, 2)
    with reader.reserve(65 * MIB, "ann", run) as take, reader.reserve(65 * MIB, "ann", other) as take_of_other:
        take(64 * MIB)
        with pytest.raises(RefusedError, match="try again"):
            take(1)
        take_of_other(1)


def test_a_body_is_replayed_once() -> None:
    async def whole() -> list[Any]:
        receive = replay_body(b"ab", receiver({"type": "http.disconnect"}))
        return [await receive(), await receive()]

    assert asyncio.run(whole()) == [part(b"ab", False), {"type": "http.disconnect"}]


# Credentials and headers


@pytest.mark.parametrize(
    ("header", "token"),
    [("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", None), ("Bearerabc", None), ("Bearer", "")],
)
def test_only_the_scheme_bearer_has_a_token(header: str, token: str | None) -> None:
    assert bearer_token(Headers({"authorization": header})) == token
    assert bearer_token(Headers({})) is None


def test_the_token_of_a_url_is_the_first() -> None:
    assert url_token(b"a=1&token=x&token=y") == "x"
    assert url_token(b"token=") == ""
    assert url_token(b"tokens=x") is None


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("det=1", "1"),
        ("a=2; det=1", "1"),
        ("xdet=1; det=a=b; det=3", "a=b"),
        ("det", None),
        ("det2=1", None),
        ("", None),
    ],
)
def test_the_cookie_is_found_by_its_name(header: str, value: str | None) -> None:
    assert read_cookie(Headers({"cookie": header}), "det") == value


@pytest.mark.parametrize(
    ("mode", "destination", "follows"),
    [
        ("navigate", "document", True),
        ("navigate", None, True),
        ("navigate", "iframe", False),
        ("cors", "document", False),
    ],
)
def test_a_link_is_followed_in_a_window_of_its_own(mode: str, destination: str | None, follows: bool) -> None:
    assert is_link({"sec-fetch-mode": mode, **({"sec-fetch-dest": destination} if destination else {})}) is follows


def test_addresses_of_ipv6_have_brackets_in_urls() -> None:
    assert [host_in_url(host) for host in ("::1", "[::1]", "127.0.0.1")] == ["[::1]", "[::1]", "127.0.0.1"]


@pytest.mark.parametrize(
    ("path", "query", "status", "caching"),
    [
        ("/static/a.css", b"v=1", 200, "public, max-age=31536000, immutable"),
        ("/static/a.css", b"v=1", 304, "public, max-age=31536000, immutable"),
        ("/static/a.css", b"v=1", 404, "no-store"),
        ("/static/a.css", b"w=1", 200, "no-cache"),
        ("/statics", b"v=1", 200, "no-store"),
    ],
)
@pytest.mark.parametrize("secure", [False, True])
def test_headers_depend_on_path_status_and_tls(
    path: str, query: bytes, status: int, caching: str, secure: bool
) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def whole() -> None:
        wrapped = add_headers(send, path, query, tls_only=secure)
        await wrapped({"type": "http.response.start", "status": status, "headers": []})
        await wrapped({"type": "http.response.body", "body": b"x"})

    asyncio.run(whole())
    headers = Headers(raw=sent[0]["headers"])
    assert headers["cache-control"] == caching
    assert ("strict-transport-security" in headers) is secure
    assert sent[1] == {"type": "http.response.body", "body": b"x"}


def test_clients_that_do_not_name_their_release_are_admitted() -> None:
    check_client_version({})
    with pytest.raises(RefusedError) as refused:
        check_client_version({"det-version": "99.0.0"})
    assert refused.value.status == 426


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        (None, "127.0.0.1"),
        ("", "127.0.0.1"),
        (" 10.0.0.1 ", "10.0.0.1"),
        ("1.1.1.1, 2.2.2.2", "2.2.2.2"),
        ("a" * 99, "a" * 64),
    ],
)
def test_a_proxy_reports_the_address_of_a_client(local: ServedSite, forwarded: str | None, address: str) -> None:
    site = site_without_server(local.store, local_access, "det.example.org")
    program = site.commands.with_headers(Host="det.example.org")
    experiment = site.store.create_experiment(config={"name": "x"}).id
    headers = {"Content-Type": "application/json", **({} if forwarded is None else {"X-Forwarded-For": forwarded})}
    body = b'{"experiment_id": %d}' % experiment
    assert program.request("POST", "/api/store/delete_experiment", body, headers).status == 200
    assert site.store.actions()[0].address == address


def test_the_line_that_a_proxy_adds_counts() -> None:
    """Some proxies leave the line of the client as it is."""
    headers = Headers(raw=[(b"x-forwarded-for", b"10.9.8.7"), (b"x-forwarded-for", b"203.0.113.8")])
    assert client_address({"type": "http"}, headers, behind_proxy=True) == "203.0.113.8"


# Permissions


def test_workers_of_a_run_neither_write_nor_manage_as_people() -> None:
    run = RunAccess(1, 1, 1)
    assert [Principal("ann", role).may_write for role in (Role.VIEWER, Role.USER, Role.ADMIN)] == [False, True, True]
    assert [Principal("ann", role).is_admin for role in (Role.VIEWER, Role.USER, Role.ADMIN)] == [False, False, True]
    assert not Principal("ann", Role.ADMIN, run).may_write
    assert not Principal("ann", Role.ADMIN, run).is_admin
