"""Collectives of a chief with two workers, whose ends of the connections the test holds."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from det_core.comm import _collective_channel
from det_core.comm._collective_channel import CollectiveChannel, check_peers, report_and_close
from det_core.comm._collectives import OPS, HubCollectives, LeafCollectives, is_local_collective
from det_core.comm._link import Link, LinkClosed, refuse_to_wait
from det_core.comm._message import DATA, MANY, NUDGE, Message
from det_core.comm._notices import Notices
from det_core.comm._ranks import Peer
from det_core.errors import CommError, OutOfStep, PeerLate, PeerLost

GATHER, ALLGATHER, BROADCAST = range(3)
ME = Peer(0, 0, os.getpid(), "here")


@dataclass
class Job:
    """Channel of rank 0, and the ends of its connections that ranks 1 and 2 have."""

    channel: CollectiveChannel
    workers: dict[int, Link]
    links: dict[int, Link]
    beat: list[Callable[[], None]] = field(default_factory=list)

    def send(self, rank: int, op: int, seq: int, payload: bytes = b"", kind: int = DATA) -> None:
        self.workers[rank].send(Message(kind, op, seq, payload), refuse_to_wait)

    def read(self, rank: int) -> tuple[int, int, int, bytes]:
        kind, op, seq, payload, _ = self.workers[rank].receive(refuse_to_wait)
        return kind, op, seq, bytes(payload)  # type: ignore[arg-type]


@pytest.fixture
def make_job() -> Iterator[Callable[..., Job]]:
    opened: list[Link] = []

    def make(timeout: float | None = None, me: Peer = ME) -> Job:
        links, workers = {}, {}
        for rank in (1, 2):
            ours, theirs = socket.socketpair()
            links[rank], workers[rank] = Link(ours, Peer(rank, rank, 7, "there")), Link(theirs, ME)
        opened.extend([*links.values(), *workers.values()])
        beat: list[Callable[[], None]] = []
        channel = CollectiveChannel(
            me,
            HubCollectives(0, None, links),
            HubCollectives(0, None, links),
            heartbeat=lambda: [one() for one in beat] and None,
            timeout=timeout,
        )
        return Job(channel, workers, links, beat)

    yield make
    for link in opened:
        link.close()


def test_the_chief_collects_by_rank_and_releases_all(make_job: Callable[..., Job]) -> None:
    job = make_job()
    job.send(2, GATHER, 1, b"two")
    job.send(1, GATHER, 1, b"one")
    assert job.channel.gather(b"zero") == [b"zero", b"one", b"two"]
    assert [job.read(rank) for rank in (1, 2)] == [(DATA, GATHER, 1, b"")] * 2


def test_local_calls_are_counted_separately(make_job: Callable[..., Job]) -> None:
    job = make_job()
    assert [job.channel.broadcast(b"a"), job.channel.broadcast(b"b", local=True), job.channel.broadcast(b"c")]
    found = [job.read(1)[1:] for _ in range(3)]
    assert found == [(BROADCAST, 1, b"a"), (BROADCAST + 3, 1, b"b"), (BROADCAST, 2, b"c")]
    assert [is_local_collective(op) for op in range(len(OPS))] == [name.endswith("_local") for name in OPS]


def test_a_nudge_is_no_answer(make_job: Callable[..., Job]) -> None:
    """Neither one of this call, nor one of an earlier call, which has been answered already."""
    job = make_job()
    job.channel.broadcast(b"")
    for rank in (1, 2):
        job.send(rank, BROADCAST, 1, kind=NUDGE)
        job.send(rank, GATHER, 2, kind=NUDGE)
        job.send(rank, GATHER, 2, b"%d" % rank)
    assert job.channel.gather(b"0") == [b"0", b"1", b"2"]


@pytest.mark.parametrize(("op", "seq"), [(BROADCAST, 1), (GATHER, 2), (GATHER + 3, 1)])
@pytest.mark.parametrize("kind", [DATA, MANY, NUDGE])
def test_a_worker_in_another_call_is_out_of_step(make_job: Callable[..., Job], op: int, seq: int, kind: int) -> None:
    job = make_job()
    job.send(2, op, seq, kind=kind)
    with pytest.raises(OutOfStep) as raised:
        job.channel.gather(b"")
    assert str(raised.value) == (
        f"{ME} is in gather (call 1), but rank 2 (pid 7 on there) is in {OPS[op]} (call {seq}); "
        "all workers must call the same collectives in the same order"
    )
    for rank in (1, 2):
        with pytest.raises(OutOfStep, match="is in gather"):
            job.read(rank)


def test_a_nudge_of_an_earlier_local_call_is_out_of_step(make_job: Callable[..., Job]) -> None:
    job = make_job()
    job.channel.broadcast(b"")
    job.send(1, BROADCAST + 3, 1, kind=NUDGE)
    with pytest.raises(OutOfStep, match=r"is in broadcast_local \(call 1\)"):
        job.channel.gather(b"")


def test_workers_that_wait_are_told_where_the_chief_is(make_job: Callable[..., Job]) -> None:
    job = make_job()
    job.send(1, GATHER, 1)
    job.beat.append(lambda: job.send(2, GATHER, 1) if job.workers[2].peek() else None)
    assert job.channel.gather(b"")
    assert [job.read(2)[:3] for _ in range(2)] == [(NUDGE, GATHER, 1), (DATA, GATHER, 1)]
    assert job.read(1)[:3] == (DATA, GATHER, 1)


def test_late_workers_are_named(make_job: Callable[..., Job]) -> None:
    job = make_job(timeout=0.1)
    began = time.monotonic()
    with pytest.raises(PeerLate) as late:
        job.channel.gather(b"")
    assert time.monotonic() - began >= 0.1
    assert late.value.rank == 1
    names = "rank 1 (pid 7 on there), rank 2 (pid 7 on there)"
    assert str(late.value).startswith(f"{names} did not join gather within 0.1 s; pass a longer timeout")
    for rank in (1, 2):
        with pytest.raises(PeerLate, match="did not join gather") as told:
            while job.workers[rank].receive(refuse_to_wait)[0] == NUDGE:
                pass
        assert told.value.rank == 1


def test_only_workers_without_another_one_below_wait_longer(make_job: Callable[..., Job], ticks: float) -> None:
    """The chief is the first to give up, and names who is late."""
    job = make_job(timeout=1.0)
    assert job.channel._slack(job.links.values()) == 0
    leaf = CollectiveChannel(ME, LeafCollectives(job.workers[1]), None, heartbeat=lambda: None, timeout=1.0)
    assert leaf._slack([job.workers[1]]) == 4 * ticks


def test_a_lost_host_ends_a_wait_and_is_reported(make_job: Callable[..., Job]) -> None:
    job = make_job()

    def fail() -> None:
        raise PeerLost("rank 2 is gone: its host has not answered", 2)

    job.beat.append(fail)
    for call in (job.channel.watch, lambda: job.channel.gather(b"")):
        with pytest.raises(PeerLost, match="rank 2 is gone"):
            call()
    with pytest.raises(PeerLost, match="rank 2 is gone") as told:
        job.read(1)
    assert told.value.rank == 2


def test_any_other_error_is_reported_with_the_rank_of_this_worker(make_job: Callable[..., Job]) -> None:
    job = make_job()

    def interrupt() -> None:
        raise KeyboardInterrupt

    job.beat.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        job.channel.allgather(b"")
    for rank in (1, 2):
        with pytest.raises(PeerLost) as told:
            job.read(rank)
        assert (told.value.rank, str(told.value)) == (0, f"{ME} aborted allgather: KeyboardInterrupt()")
    with pytest.raises(PeerLost, match="aborted allgather"):
        job.channel.gather(b"")


@pytest.mark.parametrize("name", ["gather", "allgather", "broadcast"])
def test_a_worker_that_disconnects_is_lost(make_job: Callable[..., Job], name: str) -> None:
    job = make_job()
    job.workers[2].close()
    with pytest.raises(PeerLost) as lost:
        getattr(job.channel, name)(b"")
    assert (lost.value.rank, str(lost.value)) == (2, f"rank 2 (pid 7 on there) died or disconnected during {name}")
    for again in (job.channel.gather, job.channel.broadcast):
        with pytest.raises(PeerLost) as repeated:
            again(b"")
        assert repeated.value is lost.value


def test_the_last_error_of_a_worker_explains_its_end(make_job: Callable[..., Job]) -> None:
    """Also behind other frames, and if this worker only notices that it cannot send."""
    job = make_job()
    for seq in (7, 8):
        job.send(2, BROADCAST, seq)
    job.workers[2].fail(PeerLost("rank 5 died", 5), refuse_to_wait)
    job.workers[2].close()
    with pytest.raises(PeerLost, match="rank 5 died") as lost:
        job.channel.broadcast(b"")
    assert lost.value.rank == 5
    assert job.read(1)[:2] == (DATA, BROADCAST)
    with pytest.raises(PeerLost, match="rank 5 died"):
        job.read(1)


def test_between_calls_only_ends_are_noticed(make_job: Callable[..., Job]) -> None:
    job = make_job()
    job.channel.watch()
    job.send(1, GATHER, 1, b"one")
    job.channel.watch()
    job.send(2, GATHER, 1, b"two")
    assert job.channel.gather(b"zero") == [b"zero", b"one", b"two"]
    job.workers[1].fail(PeerLate("rank 9 is late", 9), refuse_to_wait)
    with pytest.raises(PeerLate, match="rank 9 is late"):
        check_peers(job.links.values())
    job.workers[2].close()
    with pytest.raises(PeerLost, match=r"rank 2 \(pid 7 on there\) died or disconnected while workers") as lost:
        check_peers([job.links[2]])
    assert lost.value.rank == 2


def test_a_closed_channel_refuses_calls_and_wakes_its_thread(make_job: Callable[..., Job]) -> None:
    job = make_job()
    job.beat.append(job.channel.close)  # as another thread does during the wait
    for call in (job.channel.gather, job.channel.broadcast):
        with pytest.raises(CommError, match="this context was closed"):
            call(b"")
    with pytest.raises(LinkClosed):
        job.workers[1].receive(refuse_to_wait)


def test_an_error_is_reported_to_workers_that_do_not_read(
    make_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full buffer holds nobody up."""
    monkeypatch.setattr(_collective_channel, "_LAST_WORDS", 0.1)
    job = make_job(timeout=0.1)
    with pytest.raises(CommError):
        while True:
            job.channel.broadcast(bytes(10_000))
    assert job.channel.everybody.links[0].fileno() == -1


class Unread:
    """Link to a peer that does not read. To report an error to it takes all the time that there is."""

    is_sending = False

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock
        self.calls: list[str] = []

    def is_writable(self) -> bool:
        return False

    def fail(self, *_: object) -> None:
        self.calls.append("fail")
        self.clock[0] += 1.0

    def close(self) -> None:
        self.calls.append("close")


def test_reports_to_all_workers_that_do_not_read_share_one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(_collective_channel, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    links: list[Any] = [Unread(clock), Unread(clock)]
    report_and_close(links, CommError("over"))
    assert [link.calls for link in links] == [["fail", "close"], ["close"]]


def test_notices_go_up(make_job: Callable[..., Job]) -> None:
    job = make_job()
    heard: list[str] = []
    complete = threading.Event()

    def hear(text: str) -> None:
        heard.append(text)
        if len(heard) == 4:
            complete.set()

    below = [Notices(LeafCollectives(job.workers[rank])) for rank in (1, 2)]
    below[0].send("early")
    above = Notices(job.channel.everybody)
    above.send("nobody listens")
    above.listen(hear)
    above.send("own")
    for number, notices in enumerate(below):
        notices.send(f"from {number}" + "x" * 100_000 * number)
    assert complete.wait(60)
    assert sorted(text[:6] for text in heard) == ["early", "from 0", "from 1", "own"]


def test_a_notice_to_nobody_is_an_error(make_job: Callable[..., Job]) -> None:
    job = make_job()
    notices = Notices(LeafCollectives(job.workers[1]))
    with pytest.raises(CommError, match=r"rank 0 \(pid .* does not read notices"):
        for _ in range(100_000):
            notices.send("x" * 1000)
    job.links[2].close()
    lonely = Notices(LeafCollectives(job.workers[2]))
    with pytest.raises(PeerLost, match="is gone and cannot receive the notice 'hello'") as lost:
        lonely.send("hello")
    assert lost.value.rank == 0
