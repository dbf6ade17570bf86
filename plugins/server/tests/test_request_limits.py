"""Tests of the limits on the size, the number and the time of requests."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import inspect
import select
import socket
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from det_server import _threads, actions, api, pages
from det_server._http_server import HEADER_BYTES
from det_server._listener import MAX_CONNECTIONS_PER_NETWORK
from det_server._refusal import RefusedError
from det_server._threads import THREADS, Work
from det_server.api._store_calls import _work
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from det_core.interfaces.records import LogLine, SystemMetrics
from det_core.interfaces.tracking import TrackingStore

from .serving import LIMIT, Client, ServedSite, wait_for


def test_large_bodies_are_refused_before_they_are_read(local: ServedSite) -> None:
    cases = {"/models": 1 << 20, "/login": 8 << 10, "/api/login": 8 << 10, "/api/experiments": 144 << 20}
    for path, limit in cases.items():
        answer = local.commands.request("POST", path, None, {"Content-Length": str(limit + 1)})
        assert answer.status == 413, path
    assert local.owner.request("GET", "/experiments", None, {"Content-Length": "5"}).status == 413


def test_nobody_can_upload_without_credentials(served_local: ServedSite) -> None:
    with socket.create_connection(served_local.client.address, timeout=LIMIT) as connection:
        head = f"POST /api/experiments HTTP/1.1\r\nHost: 127.0.0.1:{served_local.client.address[1]}\r\n"
        connection.sendall(f"{head}Content-Length: {100 << 20}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 401")


def begin_body(site: ServedSite, program: Client, length: int) -> socket.socket:
    """Send the beginning of a large call, and return its connection."""
    connection = socket.create_connection(site.client.address, timeout=LIMIT)
    host = f"Host: 127.0.0.1:{site.client.address[1]}\r\nAuthorization: {program.headers['Authorization']}\r\n"
    connection.sendall(f"POST /api/store/create_model HTTP/1.1\r\n{host}Content-Length: {length}\r\n\r\n{{".encode())
    return connection


def test_slow_bodies_of_the_runs_of_a_user_keep_nobody_from_sending(served_team: ServedSite) -> None:
    """Otherwise tokens of runs, even ended ones, could keep everybody from writing with slow bodies."""
    store, ann, length = served_team.site.store, served_team.program("ann"), 32 << 20
    with contextlib.ExitStack() as stack:
        slow = []
        for _ in range(5):
            trial = store.create_trial(store.create_experiment(config={}, owner="ann").id, hparams={}, seed=0)
            store.start_run(trial.id, allocation_id="a")
            token = ann.call("/api/run_tokens", {"trial_id": trial.id, "run_id": 1}).json["token"]
            store.end_run(trial.id, 1)
            worker = served_team.client.with_headers(Authorization=f"Bearer {token}")
            slow += [stack.enter_context(begin_body(served_team, worker, length)) for _ in range(3)]
        for name in ("ann", "root"):
            call = {"name": name, "notes": "x" * (2 << 20)}
            assert served_team.program(name).call("/api/store/create_model", call).status == 200
        assert select.select(slow, [], [], 0)[0] == []


@pytest.mark.parametrize(
    "sent",
    [
        "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}{}",
        "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    ],
)
def test_strangers_write_no_log(served_local: ServedSite, caplog: pytest.LogCaptureFixture, sent: str) -> None:
    """Otherwise they could fill the disk, with a traceback for a hundred bytes."""
    with socket.create_connection(served_local.client.address, timeout=LIMIT) as connection:
        connection.sendall(sent.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 4")
    assert served_local.client.get("/").status == 401  # after the first answer has failed
    assert caplog.messages == []


def test_large_headers_are_refused(served_local: ServedSite) -> None:
    with contextlib.suppress(ConnectionError):
        assert served_local.client.get("/", X_Large="x" * (HEADER_BYTES + (1 << 20))).status in (400, 431)
    assert served_local.commands.get("/api/info").status == 200


def test_a_client_that_never_sends_its_headers_is_dropped(
    served_local: ServedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_server._http_server.HEADER_SECONDS", 0.5)
    host = f"Host: 127.0.0.1:{served_local.client.address[1]}\r\n".encode()
    starts = (b"", b"GET /exp", b"GET / HTTP/1.1\r\n" + host, b"GET / HTTP/1.1\r\n" + host + b"\r\nGET / HT")
    connections = [socket.create_connection(served_local.client.address, timeout=LIMIT) for _ in starts]
    for connection, start in zip(connections, starts, strict=True):
        connection.sendall(start)
    for connection in connections[:-1]:
        assert _drip(connection)
    for connection in connections:
        connection.close()


def _drip(connection: socket.socket) -> bool:
    """Send a byte of a header from time to time, and return whether the server hangs up."""
    deadline = time.monotonic() + LIMIT
    connection.settimeout(0.1)
    while time.monotonic() < deadline:
        try:
            connection.sendall(b"x")
            if connection.recv(1) == b"":
                return True
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


def connect(site: ServedSite, address: str = "127.0.0.1") -> socket.socket:
    """Connect to a server from an address of this machine."""
    return socket.create_connection(site.client.address, timeout=LIMIT, source_address=(address, 0))


def answers_soon(page: Client) -> bool:
    begin = time.monotonic()
    return page.get("/experiments").status == 200 and time.monotonic() - begin < 10


def is_dropped(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_connections_of_one_address_leave_room_for_others(served_local: ServedSite) -> None:
    with contextlib.ExitStack() as silent:
        for _ in range(MAX_CONNECTIONS_PER_NETWORK):
            silent.enter_context(connect(served_local, "127.0.0.2"))
        with connect(served_local, "127.0.0.2") as refused:
            assert is_dropped(refused)
        assert answers_soon(served_local.owner)
    wait_for(lambda: answers_soon_from(served_local, "127.0.0.2"))


def answers_soon_from(site: ServedSite, address: str) -> bool:
    with connect(site, address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return not is_dropped(connection)


def test_slow_bodies_of_strangers_are_not_waited_for(served_local: ServedSite) -> None:
    head = f"POST /models HTTP/1.1\r\nHost: 127.0.0.1:{served_local.client.address[1]}\r\nContent-Length: 9\r\n\r\nx"
    with connect(served_local) as connection:
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b"")).lower()
    assert answer.startswith(b"http/1.1 401")
    assert b"connection: close" in answer


@pytest.mark.integration
@pytest.mark.parametrize(
    ("path", "body"),
    [("/api/store/create_model", {"name": "m"}), ("/api/run_tokens", {"trial_id": 1, "run_id": 1})],
)
def test_work_that_waits_for_the_database_leaves_pages_their_threads(
    served_local: ServedSite, det_home: Path, path: str, body: dict[str, object]
) -> None:
    owner, program, store = served_local.owner, served_local.commands, served_local.store
    experiment = store.create_experiment(config={"name": "x"})
    store.start_run(store.create_trial(experiment.id, hparams={}, seed=1).id, allocation_id="a")
    with ThreadPoolExecutor(50) as pool, contextlib.closing(sqlite3.connect(det_home / "det.db")) as holder:
        holder.execute("BEGIN IMMEDIATE")
        waiting = [pool.submit(program.call, path, body) for _ in range(50)]
        while pool._work_queue.qsize():
            time.sleep(0.01)
        soon = answers_soon(owner)
        holder.rollback()
        statuses = {one.result(LIMIT).status for one in waiting}
    assert soon
    assert statuses <= {200, 409}


@pytest.mark.integration
def test_calls_that_read_for_long_leave_threads_and_the_database_to_others(
    served_team: ServedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ann, vic = served_team.site.store, served_team.log_in("ann"), served_team.program("vic")
    root, vic_page = served_team.program("root"), served_team.log_in("vic")
    store.create_experiment(config={"name": "shown in the list"})
    ended, reading = threading.Event(), list[object]()

    def read_for_long(experiment_ids: object = None) -> dict[int, str]:
        with vars(store)["_database"].read() as connection:  # a query that takes long
            reading.append(connection)
            assert ended.wait(LIMIT)
        return {}

    monkeypatch.setattr(store, "lease_holders", read_for_long)
    halves = (THREADS[Work.READING_CALLS] + THREADS[Work.PAGES]) // 2
    assert halves + THREADS[Work.CODE] < vars(store)["_database"].most_readers - 1
    with ThreadPoolExecutor(40) as pool, contextlib.ExitStack() as stack:
        stack.callback(ended.set)
        calls = [pool.submit(vic.call, "/api/store/lease_holders") for _ in range(9)]
        calls += [pool.submit(vic_page.get, "/experiments") for _ in range(9)]
        wait_for(lambda: len(reading) == halves)
        others = [pool.submit(root.call, "/api/store/models"), pool.submit(ann.get, "/account")]
        assert not wait(others, 5).not_done
        calls += [pool.submit(root.call, "/api/store/lease_holders") for _ in range(3)]
        wait_for(lambda: len(reading) == vars(store)["_database"].most_readers)
        others += [pool.submit(root.get, "/api/info")]
        assert not wait(others, 5).not_done, "the check of a token waits for nothing"
        ended.set()
        assert {call.result().status for call in (*others, *calls)} == {200}


def test_what_takes_gigabytes_has_few_threads() -> None:
    """An archive of code is in memory several times while an answer is made of it."""
    with_code = {name for name in TrackingStore.__abstractmethods__ if _work(name) is Work.CODE_CALLS}
    assert with_code == {"create_experiment", "model_definition"}
    assert (THREADS[Work.CODE_CALLS], THREADS[Work.CODE]) == (2, 1)


def test_endpoints_run_in_threads_of_which_one_person_leaves_half_to_others() -> None:
    """Those that are no coroutines run in the threads of the framework."""
    free = {"/login"}
    for route in (*actions.ROUTES, *api.ROUTES, *pages.ROUTES):
        assert isinstance(route, Route)
        if "POST" in (route.methods or ()) or route.path not in free:
            assert inspect.iscoroutinefunction(route.endpoint), route.path


def test_the_number_of_connections_is_bounded(served_local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are idle give way, of whoever has most, the oldest first."""
    monkeypatch.setattr("det_server._listener.MAX_CONNECTIONS", 5)
    mine = f"Cookie: {served_local.owner.headers['Cookie']}\r\n"
    with contextlib.ExitStack() as stack:

        def connect(head: str = "GET /", headers: str = "", begun: int = 8) -> bytes:
            one = stack.enter_context(socket.create_connection(served_local.client.address, timeout=LIMIT))
            kept.append(one)
            with contextlib.suppress(ConnectionError):
                one.sendall(f"{head} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
                return one.recv(begun)
            return b""

        def is_open(one: socket.socket) -> bool:
            with contextlib.suppress(ConnectionError):
                one.setblocking(False)
                try:
                    while one.recv(4096):
                        pass
                except BlockingIOError:
                    return True
            return False

        kept = list[socket.socket]()
        assert [connect("GET /", mine), *(connect() for _ in range(7))] == [b"HTTP/1.1"] * 8
        assert wait_for(lambda: [is_open(one) for one in kept] == [True, *[False] * 3, *[True] * 4])
        assert [connect("GET /", mine) for _ in range(6)] == [b"HTTP/1.1"] * 6
        assert wait_for(lambda: sum(map(is_open, kept)) == 5) and is_open(kept[-1])
        for _ in range(5):  # bodies that never come
            connect("POST /logout", f"{mine}Origin: http://localhost\r\nContent-Length: 9\r\n", begun=0)
        assert connect() == b"HTTP/1.1"
        ended, running, answer = threading.Event(), list[Request](), _threads._answer

        def wait(endpoint: _threads.Endpoint, request: Request) -> Response:
            running.append(request)
            ended.wait(LIMIT)
            return answer(endpoint, request)

        monkeypatch.setattr(_threads, "_answer", wait)
        for number in range(5):
            connect("GET /metrics", mine, begun=0)
            assert wait_for(lambda number=number: len(running) > number)  # type: ignore[misc]
        assert connect() == b"", "all are in use"
        ended.set()


def test_one_person_has_a_number_of_requests_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each occupies a connection while it waits, which others need."""
    monkeypatch.setattr(_threads, "MAX_REQUESTS_PER_PERSON", 2)

    async def ask() -> None:
        threads, ended = _threads.Threads(), threading.Event()
        running = [asyncio.create_task(threads.run(Work.CODE, ended.wait, LIMIT, person="vic")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RefusedError, match="you have 2 requests under way"):
            await threads.run(Work.PAGES, int, person="vic")
        assert await threads.run(Work.PAGES, int, person="ann") == 0
        ended.set()
        await asyncio.gather(*running)
        assert await threads.run(Work.PAGES, int, person="vic") == 0

    asyncio.run(ask())


@pytest.mark.integration
def test_clients_that_do_not_read_give_way_to_others(served_team: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    code = bytes(16 << 20)  # more than the buffers of a connection hold
    path = f"/experiments/{served_team.store.create_experiment(config={}, model_definition=code).id}/code.tar.gz"
    vic = served_team.log_in("vic")
    monkeypatch.setattr("det_server._listener.MAX_CONNECTIONS", 3)
    monkeypatch.setattr("det_server._http_server.STALL_SECONDS", 10 * LIMIT)
    with vic.stream(path), vic.stream(path), vic.stream(path):
        assert wait_for(lambda: _answers(served_team.client))


def _answers(client: Client) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return client.get("/login").status == 200
    return False


@pytest.mark.parametrize("count", [1001, 9000])
def test_a_url_with_too_many_fields_is_refused(local: ServedSite, count: int) -> None:
    answer = local.client.get(f"/experiments?{'a&' * count}")
    assert answer.status == 400
    assert "more than 1000 fields" in answer.text


def test_many_boxes_of_the_comparison_may_be_checked(local: ServedSite) -> None:
    experiment = local.store.create_experiment(config={"name": "x"})
    ids = [local.store.create_trial(experiment.id, hparams={}, seed=1).id for _ in range(161)]
    answer = local.owner.get(f"/compare?{'&'.join(f'trials={one}' for one in ids)}")
    assert answer.status == 200
    assert "Only the first 100 trials are shown, and 61 are left out." in answer.text


def test_a_websocket_is_refused(served_local: ServedSite) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "eA==",
    }
    assert served_local.client.request("GET", "/live", headers=upgrade).status == 401


@pytest.mark.integration
def test_unread_answers_of_one_person_leave_memory_to_others(
    served_team: ServedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a viewer could fill the memory of the server with code of experiments that nobody reads."""
    code = bytes(16 << 20)  # more than the buffers of a connection hold
    monkeypatch.setattr("det_server._large_answers.MAX_BODY_BYTES", 2 * len(code))
    path = f"/experiments/{served_team.store.create_experiment(config={}, model_definition=code).id}/code.tar.gz"
    vic, ann = served_team.log_in("vic"), served_team.log_in("ann")
    with vic.stream(path), vic.stream(path):
        assert vic.get(path).status == 503
        assert vic.get("/experiments").status == 200
        assert ann.get(path).body == code
    assert wait_for(lambda: vic.get(path).status == 200)


@pytest.mark.integration
def test_what_a_request_reads_at_once_is_bounded(local: ServedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of a run are as large as one call can be, and there may be any number of them."""
    monkeypatch.setattr(_threads, "MAX_READ_CHARACTERS", 100_000)
    store = local.store
    experiment = store.create_experiment(config={"name": "large"})
    run = store.start_run(store.create_trial(experiment.id, hparams={}, seed=0).id, allocation_id="a")
    time = datetime.now(timezone.utc)
    names = {"trial_id": run.trial_id, "run_id": run.run_id}
    for number in range(10):
        store.begin_checkpoint(f"c{number}", **names, storage={})
        resources = {"x" * 12_000: 1}
        store.complete_checkpoint(f"c{number}", run_id=1, steps_completed=number, resources=resources, metadata={})
        store.report_system_metrics([SystemMetrics(**names, group="cpu", metrics=resources, time=time)])
        store.add_logs([LogLine(**names, rank=0, stdtype="stdout", log="x" * 12_000, time=time)])
        store.create_model(f"model {number}", metadata=resources)
        store.create_model(f"noted {number}", notes="x" * 12_000)
        store.add_model_version("model 0", "c0", metadata=resources)
        store.create_trial(experiment.id, hparams=resources, seed=number)
        store.create_experiment(config=resources)
        store.create_experiment(config={}, original_config="x" * 12_000)
        ended = store.start_run(2, allocation_id="a" * 12_000)
        store.end_run(2, ended.run_id, reason="x" * 12_000)
    of_experiment, of_trial = {"experiment_id": experiment.id}, {"trial_id": run.trial_id}
    calls: dict[str, dict[str, Any]] = {
        **dict.fromkeys(("checkpoints", "system_metrics", "logs"), of_trial),
        **dict.fromkeys(("trials", "trial_results", "scored_checkpoints"), of_experiment),
        "trials_by_id": {"trial_ids": list(range(1, 12))},
        "runs": {"trial_id": 2},
        "experiments": {"limit": 10},
        "models": {"limit": 10},
        "model_versions": {"name": "model 0"},
    }
    for method, arguments in calls.items():
        answer = local.commands.call(f"/api/store/{method}", arguments)
        assert answer.json["raised"][0] == "CallTooLarge", method
    assert local.owner.get(f"/trials/{run.trial_id}").status == 409
    # Nobody keeps others from reading a list, and pages read little of each run.
    for path in ("/experiments", "/models", "/models/1", f"/experiments/{experiment.id}", "/trials/2"):
        assert local.owner.get(path).status == 200, path
    assert len(store.logs(run.trial_id)) == len(store.checkpoints(trial_id=run.trial_id)) == 10
