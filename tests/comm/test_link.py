"""Frames over one connection, whose other end the test holds."""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from det_core.comm._link import Link, LinkClosed, UnexpectedFrame, refuse_to_wait
from det_core.comm._message import DATA, HEADER, MANY, MOST_FILES, NUDGE, Message
from det_core.comm._payload import SMALL, SharedPayload, unpack_payloads, view_payload
from det_core.comm._ranks import Peer
from det_core.errors import CommError, OutOfStep, PeerLate, PeerLost

ERRORS = [PeerLost("rank 3 died", 3), PeerLate("rank 2 is late", 2), OutOfStep("another call"), CommError("closed")]


def keep_waiting(links: Iterable[Link]) -> None:
    pass


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def ends(sockets: tuple[socket.socket, socket.socket]) -> Iterator[tuple[Link, Link]]:
    links = [Link(one, Peer(rank, rank, 1, "here")) for rank, one in enumerate(sockets)]
    yield links[0], links[1]
    for link in links:
        link.close()


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


@pytest.mark.parametrize("size", [0, 1, SMALL, SMALL + 1, 3_000_000])
def test_a_payload_arrives_with_its_call(ends: tuple[Link, Link], size: int) -> None:
    one, other = ends
    payload = os.urandom(size)
    for seq in (1, 1 << 40):
        one.send(Message(DATA, 4, seq, payload), refuse_to_wait)
        kind, op, number, received, _ = other.receive(refuse_to_wait)
        assert (kind, op, number, bytes(view_payload(received))) == (DATA, 4, seq, payload)
        assert isinstance(received, SharedPayload) == (size > SMALL)


MANY_SIZES = {
    "small ones": [10] * 3,
    "large ones between small ones": [10, SMALL + 1, 10, 2 * SMALL],
    "too many files": [SMALL + 1] * (MOST_FILES + 1),
    "small ones that are large together": [SMALL // 2] * 5,
    "no more small ones than a buffer has room for": [SMALL // 2] * 3,
}


@pytest.mark.parametrize("sizes", MANY_SIZES.values(), ids=MANY_SIZES)
def test_the_payloads_of_several_workers_arrive_in_order(ends: tuple[Link, Link], sizes: list[int]) -> None:
    one, other = ends
    sent = {number: os.urandom(size) for number, size in enumerate(sizes)}
    one.send(Message(MANY, 1, 1, dict(sent)), refuse_to_wait)
    kind, _, _, payload, files = other.receive(refuse_to_wait)
    received = unpack_payloads(payload, files)
    assert (kind, list(received)) == (MANY, list(sent))
    assert {number: bytes(view_payload(each)) for number, each in received.items()} == sent


@pytest.mark.parametrize(
    ("sizes", "files", "has_rest"),
    [
        ([SMALL + 1] * MOST_FILES, MOST_FILES, True),
        ([SMALL + 1] * (MOST_FILES + 1), 1, False),
        ([SMALL] * 2 + [SMALL // 2], 1, False),
        ([SMALL, SMALL // 2], 0, True),
    ],
)
def test_a_frame_has_few_files_and_a_small_rest(sizes: list[int], files: int, has_rest: bool) -> None:
    data, attached = Message(MANY, 1, 1, {number: bytes(size) for number, size in enumerate(sizes)}).shared
    assert (len(attached), len(data) > HEADER.size) == (files, has_rest)
    assert len(data) <= HEADER.size + 2 * SMALL


@pytest.mark.parametrize(("payload", "is_small"), [(bytes(SMALL), True), (bytes(SMALL + 1), False)])
def test_small_frames_are_copied(payload: bytes, is_small: bool) -> None:
    message = Message(DATA, 1, 2, payload)
    assert (message.small is not None) == is_small
    header, data = message.copied
    assert HEADER.unpack(header) == (DATA, 1, 0, 2, len(payload))
    assert (data, message.small) == (payload, header + payload if is_small else None)


@pytest.mark.parametrize("first", [1, HEADER.size, HEADER.size + 70_000])
def test_a_frame_that_comes_in_pieces_is_put_together(
    sockets: tuple[socket.socket, socket.socket], ends: tuple[Link, Link], first: int
) -> None:
    payload = os.urandom(200_000)
    header, _ = Message(DATA, 2, 7, payload).copied
    data = header + payload + Message(DATA, 2, 8, b"next").small  # type: ignore[operator]
    waits: list[int] = []
    thread = threading.Thread(target=sockets[0].sendall, args=[data[first:]])

    def idle(links: Iterable[Link]) -> None:
        if not waits:
            sockets[0].setblocking(True)
            thread.start()
        waits.append(1)

    sockets[0].sendall(data[:first])
    assert ends[1].receive(idle)[2:4] == (7, payload)
    assert waits
    assert ends[1].receive(keep_waiting)[2:4] == (8, b"next")
    thread.join()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_the_reason_of_a_peer_that_gives_up_is_raised(ends: tuple[Link, Link], error: CommError) -> None:
    ends[0].fail(error, refuse_to_wait)
    with pytest.raises(CommError) as raised:
        ends[1].receive(refuse_to_wait)
    assert str(raised.value) == str(error)
    assert getattr(raised.value, "rank", None) == getattr(error, "rank", None)
    assert type(raised.value) is (type(error) if type(error) is not CommError else PeerLost)


def test_a_look_ahead_consumes_nothing(ends: tuple[Link, Link]) -> None:
    one, other = ends
    assert (other.peek(), other.is_readable(), other.is_ahead()) == (None, False, False)
    for seq in (1, 2):
        one.send(Message(NUDGE, 3, seq), refuse_to_wait)
    assert other.is_readable()
    assert other.peek() == other.peek() == (NUDGE, 3, 1)
    assert other.is_ahead()
    assert [other.receive(refuse_to_wait)[2] for _ in range(2)] == [1, 2]
    assert (other.peek(), other.is_readable(), other.is_ahead()) == (None, False, False)
    one.close()
    with pytest.raises(LinkClosed):
        other.peek()


def test_what_was_sent_before_the_end_arrives(ends: tuple[Link, Link]) -> None:
    one, other = ends
    one.send(Message(DATA, 0, 1, b"last words"), refuse_to_wait)
    one.close()
    assert other.receive(refuse_to_wait)[3] == b"last words"
    for _ in range(2):
        with pytest.raises(LinkClosed) as closed:
            other.receive(refuse_to_wait)
        assert closed.value.link is other
    with pytest.raises(LinkClosed):
        other.send(Message(DATA, 0, 1, b"nobody reads this"), refuse_to_wait)
    assert not other.is_receiving


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_frame_that_is_cut_off_is_the_end(
    sockets: tuple[socket.socket, socket.socket], ends: tuple[Link, Link], size: int
) -> None:
    sockets[0].sendall(HEADER.pack(DATA, 0, 0, 1, size) + b"12345")
    assert ends[1].peek() == (DATA, 0, 1)
    sockets[0].close()
    with pytest.raises(LinkClosed):
        ends[1].receive(refuse_to_wait)
    assert ends[1].is_receiving


def test_a_wait_calls_back_until_that_fails(ends: tuple[Link, Link]) -> None:
    waits: list[list[Link]] = []

    def idle(links: Iterable[Link]) -> None:
        waits.append(list(links))
        if len(waits) == 3:
            raise PeerLost("gone", 1)

    with pytest.raises(PeerLost, match="gone"):
        ends[0].receive(idle)
    assert waits == [[ends[0]]] * 3


def test_a_sender_waits_for_a_slow_reader(ends: tuple[Link, Link]) -> None:
    count, waits = 2000, threading.Event()
    received: list[int] = []

    def read() -> None:
        waits.wait(60)
        received.extend(ends[1].receive(keep_waiting)[2] for _ in range(count))

    thread = in_thread(read)
    for seq in range(count):
        ends[0].send(Message(DATA, 0, seq, bytes(1000)), lambda links: waits.set())
    thread.join()
    assert waits.is_set()
    assert received == list(range(count))
    assert not ends[0].is_sending


def test_a_sender_whose_peer_sends_too_is_not_stuck(ends: tuple[Link, Link]) -> None:
    """Two workers that are out of step would otherwise wait for each other with full buffers."""
    one, other = ends
    other.send(Message(DATA, 5, 9, b"mine"), refuse_to_wait)
    with pytest.raises(UnexpectedFrame) as frame:
        for seq in range(100_000):
            one.send(Message(DATA, 0, seq, bytes(1000)), keep_waiting)
    assert (frame.value.link, frame.value.op, frame.value.seq) == (one, 5, 9)
    assert one.is_sending
    assert not one.is_writable()


def test_closing_wakes_a_thread_that_waits(ends: tuple[Link, Link]) -> None:
    waits, ended = threading.Event(), threading.Event()

    def read() -> None:
        with pytest.raises(LinkClosed):
            ends[0].receive(lambda links: waits.set())
        ended.set()

    thread = in_thread(read)
    assert waits.wait(60)
    ends[0].close()
    thread.join(60)
    assert ended.is_set()
    assert (ends[0].fileno(), ends[0].is_readable(), ends[0].is_dead()) == (-1, True, False)


def test_no_descriptor_of_a_payload_stays_open(ends: tuple[Link, Link]) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    ends[0].send(Message(DATA, 0, 1, bytes(SMALL + 1)), refuse_to_wait)
    payload = ends[1].receive(refuse_to_wait)[3]
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1
    del payload
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_limit_of_open_files_is_named(ends: tuple[Link, Link]) -> None:
    ends[0].send(Message(DATA, 0, 1, bytes(SMALL + 1)), refuse_to_wait)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))  # poll() needs one
    try:
        with pytest.raises(CommError, match="too many open files; raise `ulimit -n`"):
            ends[1].receive(refuse_to_wait)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
