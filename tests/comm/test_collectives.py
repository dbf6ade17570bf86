"""Results of the collectives, in threads of this process, on one and several simulated machines."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from det_core.core import DistributedContext

from ..waiting import wait_for
from . import job

LAYOUTS = pytest.mark.parametrize("machines", [(1,), (2,), (4,), (2, 2), (1, 1, 1), (3, 1, 2)], ids=str)
TCP = pytest.mark.parametrize("force_tcp", [False, True], ids=["", "tcp"])
LARGE = pytest.param(3_000_000, marks=pytest.mark.integration)
SIZES = pytest.mark.parametrize("size", [1, 60_000, 70_000, LARGE])


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def machine_of(context: DistributedContext, ranks: list[dict[str, Any]]) -> list[int]:
    return [place["rank"] for place in ranks if place["cross_rank"] == context.cross_rank]


@LAYOUTS
@TCP
def test_all_methods_work_in_any_order(machines: tuple[int, ...], force_tcp: bool) -> None:
    ranks = job.layout(*machines)
    everybody = list(range(len(ranks)))

    def work(context: DistributedContext) -> None:
        rank, is_hub, here = context.rank, context.local_rank == 0, machine_of(context, ranks)
        for step in range(3):
            assert context.allgather((rank, step)) == [(each, step) for each in everybody]
            assert context.gather(rank) == (everybody if rank == 0 else None)
            assert context.gather_local(rank) == (here if is_hub else None)
            assert context.broadcast({"step": step} if rank == 0 else None) == {"step": step}
            assert context.allgather_local(rank) == here
            assert context.broadcast_local(rank if is_hub else None) == here[0]
            assert context.broadcast_local() is None

    job.threads(ranks, work, force_tcp=force_tcp)


@LAYOUTS
def test_own_objects_are_not_copied(machines: tuple[int, ...]) -> None:
    def work(context: DistributedContext) -> None:
        mine = [context.rank]
        assert context.allgather(mine)[context.rank] is mine
        assert context.allgather_local(mine)[context.local_rank] is mine
        gathered, gathered_here = context.gather(mine), context.gather_local(mine)
        assert gathered is None or gathered[0] is mine
        assert gathered_here is None or gathered_here[0] is mine
        assert (context.broadcast(mine) is mine) == (context.rank == 0)
        assert (context.broadcast_local(mine) is mine) == (context.local_rank == 0)

    job.threads(job.layout(*machines), work)


@SIZES
@TCP
def test_payloads_of_any_size_arrive(size: int, force_tcp: bool) -> None:
    def work(context: DistributedContext) -> None:
        mine = bytes([context.rank]) * size
        expected = [bytes([rank]) * size for rank in range(context.size)]
        for _ in range(2):
            assert context.allgather(mine) == expected
            assert context.gather(mine) in (expected, None)
            assert context.broadcast(mine) == expected[0]
            assert context.allgather([mine, size][: 1 + context.rank % 2])[1:2] == [[expected[1], size]]

    job.threads(job.layout(2, 1), work, force_tcp=force_tcp)


def test_gathers_are_barriers_and_broadcasts_are_not() -> None:
    entered = threading.Event()

    def work(context: DistributedContext, name: str) -> None:
        if context.rank == 2:
            time.sleep(0.2)
            entered.set()
        getattr(context, name)(1)
        assert entered.is_set() or (name.startswith("broadcast") and context.rank == 0)
        if name.startswith("broadcast") and context.rank == 0:
            assert not entered.is_set()

    for name in ("gather", "allgather", "gather_local", "allgather_local"):
        entered.clear()
        job.threads(job.layout(3), lambda context, name=name: work(context, name))  # type: ignore[misc]


@pytest.mark.parametrize("name", ["broadcast", "broadcast_local"])
def test_a_broadcast_does_not_wait(name: str) -> None:
    sent = threading.Event()

    def work(context: DistributedContext) -> None:
        assert context.rank == 0 or sent.wait(60)
        getattr(context, name)(1)
        sent.set()

    job.threads(job.layout(3), work)


@TCP
def test_the_chief_may_be_far_ahead(force_tcp: bool) -> None:
    count, padding = 2000, bytes(10_000)

    def work(context: DistributedContext) -> bool:
        if context.rank == 0:
            for step in range(count):
                context.broadcast((step, padding))
            return True
        time.sleep(0.3)
        return all(context.broadcast(None) == (step, padding) for step in range(count))

    assert job.threads(job.layout(2), work, force_tcp=force_tcp) == [True, True]


def test_a_message_sent_before_closing_arrives() -> None:
    def work(context: DistributedContext) -> list[int]:
        if context.rank:
            time.sleep(0.3)
        return [context.broadcast(step) for step in range(100)]

    for force_tcp in (False, True):
        assert job.threads(job.layout(3), work, force_tcp=force_tcp) == [list(range(100))] * 3


@pytest.mark.soak
def test_200_megabytes_arrive() -> None:
    payload = os.urandom(1 << 20) * 200

    def work(context: DistributedContext) -> bool:
        return context.allgather(payload)[1 - context.rank] == payload

    assert job.threads(job.layout(2), work) == [True, True]


@LAYOUTS
def test_each_channel_has_its_own_order(machines: tuple[int, ...]) -> None:
    count = 50

    def work(context: DistributedContext) -> None:
        channel, other = context.channel(), context.channel()
        results: list[list[Any]] = [[], []]

        def collect(channel: DistributedContext, results: list[Any]) -> None:
            for step in range(count):
                results.append(channel.allgather((context.rank, step)))

        threads = [threading.Thread(target=collect, args=pair) for pair in zip((channel, other), results, strict=True)]
        for thread in threads[:: -1 if context.rank % 2 else 1]:
            thread.start()
        for step in range(count):
            assert context.broadcast(step) == step
        for thread in threads:
            thread.join()
        expected = [[(rank, step) for rank in range(context.size)] for step in range(count)]
        assert results == [expected, expected]
        assert (channel.rank, channel.size, channel.local_rank) == (context.rank, context.size, context.local_rank)

    job.threads(job.layout(*machines), work)


def test_a_channel_works_while_the_context_waits() -> None:
    def work(context: DistributedContext) -> Any:
        channel = context.channel()
        if context.rank == 0:
            assert channel.allgather("first") == ["first", "second"]
            return context.allgather(0)
        waiting: list[Any] = []
        thread = threading.Thread(target=lambda: waiting.append(context.allgather(1)))
        thread.start()
        time.sleep(0.1)
        channel.allgather("second")
        thread.join()
        return waiting[0]

    assert job.threads(job.layout(2), work) == [[0, 1]] * 2


@LAYOUTS
@TCP
def test_notices_reach_the_chief(machines: tuple[int, ...], force_tcp: bool) -> None:
    size = sum(machines)
    expected = {f"{when} {rank}" for when in ("early", "late") for rank in range(size)} | {"chief's before"}
    if size > 1:
        expected.add("before")

    def work(context: DistributedContext) -> set[str]:
        heard: set[str] = set()
        complete = threading.Event()

        def hear(text: str) -> None:
            heard.add(text)
            if heard >= expected:
                complete.set()

        context._notify("before" * (context.rank > 0) or "chief's before")
        if context.rank == 0:
            context._listen(hear)
            context._notify("chief's before")
        context._notify(f"early {context.rank}")
        context.allgather(None)
        thread = threading.Thread(target=context._notify, args=(f"late {context.rank}",))
        thread.start()
        thread.join()
        if context.rank == 0:
            complete.wait(60)
        context.allgather(None)
        return heard

    heard, *others = job.threads(job.layout(*machines), work, force_tcp=force_tcp)
    assert heard == expected
    assert others == [set()] * (size - 1)


def test_a_single_process_opens_no_connection() -> None:
    before, threads = open_files(), set(threading.enumerate())
    (place,) = job.layout(1)
    context = DistributedContext(**place, force_tcp=True)
    channel = context.channel()
    heard: list[str] = []
    channel._listen(heard.append)
    context._notify("leave")
    mine = object()
    assert context.allgather(mine)[0] is channel.broadcast(mine) is mine
    assert heard == ["leave"]
    assert open_files() == before
    assert set(threading.enumerate()) <= threads
    context.close()
    context.close()


def test_no_descriptor_stays_open() -> None:
    before = open_files()

    def work(context: DistributedContext) -> None:
        context.channel().allgather(b"x" * 100_000)
        context.broadcast(b"x" * 100_000)
        context.close()

    for force_tcp in (False, True):
        job.threads(job.layout(2, 2), work, force_tcp=force_tcp)
    wait_for(lambda: open_files() <= before)
    assert open_files() == before
