"""Meeting of the workers of a job, and its obstacles."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from det_core.comm import _handshake, _unix
from det_core.comm._connection_plan import PeerRole
from det_core.comm._handshake import Listener, connect_to_listener
from det_core.comm._mesh import Mesh
from det_core.comm._ranks import Peer, Ranks
from det_core.comm._tcp import TcpTransport
from det_core.core import DistributedContext
from det_core.errors import CommError, PeerLost

from ..waiting import wait_for
from . import job


def allgather(context: DistributedContext) -> list[Any]:
    return context.allgather(context.rank)


def test_a_missing_worker_is_named_to_all() -> None:
    ranks = job.layout(4)
    futures = job.outcomes([ranks[0], ranks[1], ranks[3]], allgather, timeout=1.0)
    for future in futures:
        error = future.exception()
        assert isinstance(error, PeerLost)
        assert error.rank == 2
        assert "rank 2 (local 2) did not connect within 1 s" in str(error)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("machines", "absent", "named"),
    [((2, 2), [3], 3), ((1, 2), [1, 2], 1), ((2, 2), [2, 3], 2), ((1, 1, 1), [1, 2], 1), ((2, 1), [0], 0)],
)
def test_a_missing_worker_or_machine_is_named_to_all(machines: tuple[int, ...], absent: list[int], named: int) -> None:
    ranks = [place for place in job.layout(*machines) if place["rank"] not in absent]
    for future in job.outcomes(ranks, allgather, timeout=1.0):
        error = future.exception()
        assert isinstance(error, PeerLost)
        assert error.rank == named, error


def test_all_missing_workers_are_listed() -> None:
    (future,) = job.outcomes(job.layout(4)[:1], allgather, timeout=0.3)
    with pytest.raises(PeerLost, match=r"rank 1 \(local 1\), rank 2 \(local 2\), rank 3 \(local 3\)") as lost:
        future.result()
    assert lost.value.rank == 1


def test_a_missing_chief_is_named() -> None:
    (future,) = job.outcomes(job.layout(2)[1:], allgather, timeout=0.3)
    with pytest.raises(PeerLost, match="rank 0 could not be reached .* within 0.3 s") as lost:
        future.result()
    assert lost.value.rank == 0


def test_workers_may_connect_in_any_order() -> None:
    for first in (0, 2):

        def work(context: DistributedContext) -> list[Any]:
            return context.allgather(context.rank)

        results: list[Any] = []
        ranks = job.layout(3)
        port = job.free_port()

        def join(place: dict[str, Any], first: int = first, port: int = port, results: list[Any] = results) -> None:
            time.sleep(0 if place["rank"] == first else 0.3)
            with_context = DistributedContext(**place, pub_port=port)
            results.append(work(with_context))
            with_context.close()

        workers = [threading.Thread(target=join, args=(place,)) for place in ranks]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert results == [[0, 1, 2]] * 3


@pytest.mark.parametrize("machines", [(3,), (2, 1)])
@pytest.mark.parametrize("force_tcp", [False, True])
def test_a_worker_may_connect_long_after_the_others(
    machines: tuple[int, ...], force_tcp: bool, ticks: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting workers watch each other every tick, which must not consume data that has arrived early."""
    go = Mesh._connect_to

    def hesitate(self: Mesh, *arguments: Any) -> Any:
        if self._ranks.rank == 2:
            time.sleep(3 * ticks)
        return go(self, *arguments)

    monkeypatch.setattr(Mesh, "_connect_to", hesitate)
    heard = threading.Event()

    def work(context: DistributedContext) -> list[Any]:
        if context.rank == 1:
            context._notify("early")
        if context.rank == 0:
            context._listen(lambda text: heard.set())
            assert heard.wait(60)
        with closing(context.channel()) as channel:
            return [channel.allgather(context.rank), context.allgather(context.rank)]

    for each in job.threads(job.layout(*machines), work, force_tcp=force_tcp):
        assert each == [[0, 1, 2]] * 2


def test_two_jobs_of_the_same_name_do_not_mix() -> None:
    port = job.free_port()
    place = _unix.rendezvous_path(port, 0)
    ranks = job.layout(2)
    first: list[Any] = []
    waiting = threading.Thread(
        target=lambda: first.extend(job.outcomes(ranks[:1], allgather, pub_port=port, timeout=60))
    )
    waiting.start()
    wait_for(Path(place).exists)
    (second,) = job.outcomes(ranks[:1], allgather, pub_port=port, timeout=60)
    with pytest.raises(CommError, match="another job of yours .* pass another port_offset"):
        second.result()
    (third,) = job.outcomes(ranks[1:], allgather, pub_port=port, timeout=60)
    waiting.join()
    assert third.result() == first[0].result() == [0, 1]
    assert not Path(place).exists()


@pytest.mark.integration
def test_the_same_rank_twice_is_refused() -> None:
    ranks = job.layout(3)
    futures = job.outcomes([ranks[0], ranks[1], ranks[1]], allgather, timeout=1.5)
    found = [str(future.exception()) for future in futures]
    assert sum("claims to be local 1, as does rank 1" in text for text in found) == 1
    assert sum("rank 2 (local 2) did not connect" in text for text in found) == 2


@pytest.mark.integration
def test_a_worker_with_another_world_size_is_refused() -> None:
    one, _ = job.layout(2)
    *_, three = job.layout(3)
    futures = job.outcomes([one, three], allgather, timeout=1.0)
    assert "says that size and cross_size are [3, 1]" in str(futures[1].exception())


def test_sockets_of_dead_processes_are_replaced() -> None:
    port = job.free_port()
    place = _unix.rendezvous_path(port, 0)
    Path(place).parent.mkdir(mode=0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(place)
        dead.listen()
    assert Path(place).exists()
    assert job.threads(job.layout(2), allgather, pub_port=port) == [[0, 1]] * 2
    assert not Path(place).exists()


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_a_directory_that_others_can_enter_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/short" if len(str(tmp_path)) > 60 else str(tmp_path))
    monkeypatch.setattr(_unix, "_socket_directory", lambda: tmp_path / "det")
    (tmp_path / "det").mkdir()
    (tmp_path / "det").chmod(mode)
    with pytest.raises(CommError, match=f"mode {mode:o}; expected user {os.getuid()} and mode 700"):
        job.threads(job.layout(2)[:1], allgather, timeout=0.5)


def test_a_link_in_place_of_the_directory_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_unix, "_socket_directory", lambda: tmp_path / "det")
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "det").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CommError, match="should be a directory of yours"):
        job.threads(job.layout(2)[:1], allgather, timeout=0.5)


def test_a_lock_that_nobody_releases_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_unix, "_socket_directory", lambda: tmp_path / "det")
    monkeypatch.setattr(_unix, "_LOCKED", 0.1)
    (tmp_path / "det").mkdir(mode=0o700)
    holder = os.open(tmp_path / "det", os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(CommError, match=r"has been locked for 0\.1 s"):
        job.threads(job.layout(2)[:1], allgather, timeout=0.5)
    os.close(holder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another's directory")
def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_unix, "_socket_directory", lambda: tmp_path / "det")
    (tmp_path / "det").mkdir(mode=0o700)
    os.chown(tmp_path / "det", 12345, 12345)
    with pytest.raises(CommError, match="belongs to user 12345"):
        job.threads(job.layout(2)[:1], allgather, timeout=0.5)


def test_a_long_temporary_directory_leaves_room_for_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 100)))
    assert job.threads(job.layout(2), allgather) == [[0, 1]] * 2


def test_the_directory_of_sockets_is_private() -> None:
    job.threads(job.layout(2), allgather)
    found = _unix._socket_directory().stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.getuid(), 0o700)


@pytest.mark.parametrize("machines", [(2,), (1, 1)], ids=str)
def test_a_port_in_use_is_reported(machines: tuple[int, ...]) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        (future,) = job.outcomes(job.layout(*machines)[:1], allgather, pub_port=port, force_tcp=True, timeout=0.5)
        with pytest.raises(CommError, match=f"port {port}: .*pass another port_offset"):
            future.result()


def test_port_offset_moves_the_chief() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        options = {"pub_port": port - 1, "port_offset": job.free_port() - port + 1}
        assert job.threads(job.layout(1, 1), allgather, **options) == [[0, 1]] * 2


def test_the_pull_port_is_not_used() -> None:
    with socket.create_server(("", 0)) as taken:
        options = {"pull_port": taken.getsockname()[1], "force_tcp": True}
        assert job.threads(job.layout(2), allgather, **options) == [[0, 1]] * 2


@pytest.mark.parametrize("key", [None, "", "short"])
@pytest.mark.parametrize("machines", [(2,), (1, 1)], ids=str)
def test_tcp_needs_a_good_key(monkeypatch: pytest.MonkeyPatch, key: str | None, machines: tuple[int, ...]) -> None:
    if key is None:
        monkeypatch.delenv("DET_COMM_KEY")
    else:
        monkeypatch.setenv("DET_COMM_KEY", key)
    for future in job.outcomes(job.layout(*machines), allgather, force_tcp=True, timeout=0.5):
        with pytest.raises(ValueError, match=r"DET_COMM_KEY.*secrets.token_hex\(32\)"):
            future.result()


@pytest.mark.parametrize(("machines", "force_tcp"), [((2,), True), ((2, 2), False)], ids=str)
def test_tcp_needs_the_library_for_tls_on_all_workers(
    monkeypatch: pytest.MonkeyPatch, machines: tuple[int, ...], force_tcp: bool
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for future in job.outcomes(job.layout(*machines), allgather, force_tcp=force_tcp):
        with pytest.raises(CommError, match=r"need cryptography, .* pip install 'det-core\[tls\]'"):
            future.result()


@pytest.mark.parametrize("carries_payloads", [True, False])
def test_a_host_that_does_not_answer_is_noticed_soon(carries_payloads: bool) -> None:
    """A peer that does not read payloads for 30 s, such as a stopped one, is no such host."""
    transport = TcpTransport("127.0.0.1", "127.0.0.1", carries_payloads=carries_payloads)
    with socket.socket() as sock:
        transport._prepare(sock)
        names = ("TCP_NODELAY", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        found = [sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names]
        assert found == [1, 10, 5, 4, 0 if carries_payloads else 30_000]
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_one_host_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DET_COMM_KEY")
    assert job.threads(job.layout(2), allgather) == [[0, 1]] * 2


def test_a_peer_with_another_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides notice, and the listener stays open for the right peer."""
    ranks = [Ranks(rank, 2, 0, 1, rank, 2) for rank in (0, 1)]
    me, peer = (Peer.myself(each) for each in ranks)
    ours = TcpTransport("127.0.0.1", "127.0.0.1", carries_payloads=False)
    monkeypatch.setenv("DET_COMM_KEY", "a" * 40)
    theirs, role = TcpTransport("127.0.0.1", "127.0.0.1", carries_payloads=False), PeerRole("machine", 1)
    with closing(Listener(ours, ours.fresh(), me, [2, 2], [role])) as listener:
        with pytest.raises(CommError, match="has another DET_COMM_KEY; set the same for all workers"):
            connect_to_listener(theirs, listener.address, peer, [2, 2], role, seconds=60)
        wait_for(lambda: listener.other_key)
        assert (listener.other_key, listener.missing) == ("127.0.0.1", [role])
        connect_to_listener(ours, listener.address, peer, [2, 2], role, seconds=60).close()
        assert listener.wait(60)
    listener.links[role].close()


REFUSALS = {
    "size": (
        PeerRole("local", 1),
        [3, 1],
        r"rank 1 .* says that size and cross_size are \[3, 1\], rank 0 .* says \[2, 1\]",
    ),
    "role": (PeerRole("local", 2), [2, 1], "rank 1 .* claims to be local 2, which rank 0 .* does not expect"),
    "twice": (
        PeerRole("local", 1),
        [2, 1],
        "rank 1 .* claims to be local 1, as does rank 1 .*; pass another port_offset",
    ),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refusal_has_a_reason(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    role, size, reason = REFUSALS[kind]
    me, peer = (Peer.myself(Ranks(rank, 2, rank, 2, 0, 1)) for rank in (0, 1))
    transport, expected = _unix.UnixTransport(), PeerRole("local", 1)
    with closing(Listener(transport, transport.fresh(), me, [2, 1], [expected])) as listener, ExitStack() as links:
        if kind == "twice":
            links.callback(connect_to_listener(transport, listener.address, peer, [2, 1], role, seconds=60).close)
        with pytest.raises(CommError, match=reason):
            connect_to_listener(transport, listener.address, peer, size, role, seconds=60)
        wait_for(lambda: "that is not of this job (number 1): " in caplog.text)
        assert listener.missing == [expected] * (kind != "twice")
        for link in listener.links.values():
            link.close()


@pytest.mark.integration
def test_different_keys_end_both_sides_long_before_the_timeout() -> None:
    body = """
    os.environ["DET_COMM_KEY"] = ("a" if os.environ["TEST_RANKS"].startswith("{'rank': 0") else "b") * 40
    try:
        join(chief_ip="127.0.0.1", pub_port=int(sys.argv[1]))
    except CommError as error:
        print(error)
    """
    for output in job.run(job.layout(1, 1), body, job.free_port()):
        assert "has another DET_COMM_KEY; set the same for all workers" in output


def greetings() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "det-greeting"]


def test_a_flood_of_strangers_costs_few_lines_and_threads(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest silent connections are dropped, so a peer of the job can still connect."""
    monkeypatch.setattr(_handshake, "_GREETING_SECONDS", 600.0)
    ranks = [Ranks(rank, 2, 0, 1, rank, 2) for rank in (0, 1)]
    me, peer = (Peer.myself(each) for each in ranks)
    transport, role = TcpTransport("127.0.0.1", "127.0.0.1", carries_payloads=False), PeerRole("machine", 1)
    with closing(Listener(transport, transport.fresh(), me, [2, 2], [role])) as listener, ExitStack() as strangers:
        for _ in range(2 * _handshake._MOST_AT_ONCE):
            strangers.enter_context(socket.create_connection(listener.address, 60))
        strangers.enter_context(
            closing(connect_to_listener(transport, listener.address, peer, [2, 2], role, seconds=60))
        )
        assert listener.wait(60)
        wait_for(lambda: len(greetings()) <= _handshake._MOST_AT_ONCE)
    for thread in greetings():
        thread.join()
    listener.links[role].close()
    lines = [record for record in caplog.records if "dropped a connection" in record.getMessage()]
    assert _handshake._MOST_LINES < len(lines) < 20


def test_the_first_strangers_and_then_ever_fewer_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    transport = TcpTransport("127.0.0.1", "127.0.0.1", carries_payloads=False)
    me = Peer.myself(Ranks(0, 2, 0, 1, 0, 2))
    with closing(Listener(transport, transport.fresh(), me, [2, 2], [PeerRole("machine", 1)])) as listener:
        for _ in range(70):
            listener._drop(socket.socket(), ("192.0.2.1", 5), ValueError("no greeting"))
    numbers = [int(message.partition("(number ")[2].partition(")")[0]) for message in caplog.messages]
    assert numbers == [*range(1, 11), 16, 32, 64]


def test_a_listener_survives_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection for which no thread can be started is dropped."""
    start, refused = threading.Thread.start, []

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name == "det-greeting" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    assert job.threads(job.layout(2), allgather) == [[0, 1]] * 2
    assert refused


@pytest.mark.parametrize("sent", [b"", b"\x00", b"\x00\x05[1,2", b"\x00\x02{}", b"\x00\x02[["])
def test_what_is_no_greeting_is_refused(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(sent)
        with pytest.raises(ValueError, match="no greeting|Expecting"):
            _handshake._read_greeting(ours, time.monotonic() + 60)


def test_a_greeting_that_trickles_in_has_a_time_limit() -> None:
    """The time limit is for the whole greeting. Received bytes do not renew it."""
    ours, theirs = socket.socketpair()
    stop = threading.Event()

    def trickle() -> None:
        theirs.sendall(b"\xff\xff")
        while not stop.wait(0.02):
            theirs.send(b" ")

    thread = threading.Thread(target=trickle)
    with ours, theirs:
        thread.start()
        try:
            with pytest.raises((ValueError, TimeoutError)):
                _handshake._read_greeting(ours, time.monotonic() + 0.3)
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("waits", [False, True])
def test_foreign_connections_do_not_disturb_a_job(caplog: pytest.LogCaptureFixture, waits: bool) -> None:
    port = job.free_port()
    results: list[Any] = []

    def join(place: dict[str, Any]) -> None:
        time.sleep(0.5 * place["rank"])
        results.extend(job.threads([place], allgather, pub_port=port, force_tcp=True))

    workers = [threading.Thread(target=join, args=(place,)) for place in job.layout(2)]
    with strangers_at(port, waits=waits), caplog.at_level(logging.WARNING):
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert results == [[0, 1]] * 2
    assert "dropped a connection from" in caplog.text


@contextmanager
def strangers_at(port: int, *, waits: bool) -> Iterator[None]:
    """Connect to a port again and again while the block runs, and send what is no greeting.

    Args:
        port: the port.
        waits: whether the strangers keep their connections.
    """
    garbage = [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(100_000), b"\x16\x03\x01", bytes(1000)]
    stop, strangers = threading.Event(), list[socket.socket]()

    def disturb() -> None:
        while not stop.wait(0.02):
            for data in garbage:
                try:
                    stranger = socket.create_connection(("127.0.0.1", port), 1)
                    strangers.append(stranger)
                    stranger.settimeout(0.2)
                    stranger.sendall(data)
                    if not waits:
                        stranger.close()
                except OSError:
                    time.sleep(0.01)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for stranger in strangers:
            stranger.close()
        for thread in threading.enumerate():
            if thread.name == "det-greeting":
                thread.join()


def test_a_stranger_with_our_key_but_no_greeting_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    from det_core.comm import _tls

    port = job.free_port()
    results: list[Any] = []
    thread = threading.Thread(
        target=lambda: results.extend(job.threads(job.layout(2)[:1], allgather, pub_port=port, force_tcp=True))
    )
    thread.start()
    for data in (b"\xff\xff", b"\x00\x02[]", b"\x00\x02{}", b"\x00\x04nope", b"\x00\x0f[[1],[2],[3,4]]"):
        while True:
            try:
                with _tls.make_tls_contexts()[1].wrap_socket(
                    socket.create_connection(("127.0.0.1", port), 1)
                ) as stranger:
                    stranger.sendall(data)
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
    assert job.threads(job.layout(2)[1:], allgather, pub_port=port, force_tcp=True) == [[0, 1]]
    thread.join()
    assert results == [[0, 1]]
    assert sum("dropped a connection from ('127.0.0.1'" in record.getMessage() for record in caplog.records) == 5
