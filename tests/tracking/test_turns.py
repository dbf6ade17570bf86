"""Turns of threads at the tracking store."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from det_core.interfaces.server_store import Change
from det_core.tracking import open_store
from det_core.tracking._database import Turns

from ..waiting import wait_for

SECONDS = 60.0


def test_turns_go_in_the_order_of_requests() -> None:
    """A thread that asks again at once goes last. Otherwise, one that never pauses would leave no turn to others."""
    turns, order = Turns(1), list[int]()

    def take(number: int) -> None:
        with turns.take(SECONDS):
            order.append(number)

    threads = [threading.Thread(target=take, args=[number]) for number in range(5)]
    with turns.take(0):
        for number, thread in enumerate(threads):
            thread.start()
            wait_for(lambda: len(turns._waiting) > number)  # noqa: B023
    take(5)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4, 5]


def test_a_request_that_is_given_up_takes_no_turn() -> None:
    turns = Turns(1)
    with turns.take(0), pytest.raises(TimeoutError), turns.take(0.01):
        pass
    with turns.take(0):
        pass


def test_no_more_threads_than_turns_at_once() -> None:
    turns, lock, now, most = Turns(3), threading.Lock(), list[int](), list[int]()

    def take(number: int) -> None:
        for _ in range(20):
            with turns.take(SECONDS):
                with lock:
                    now.append(number)
                    most.append(len(now))
                time.sleep(0.001)
                with lock:
                    now.remove(number)

    threads = [threading.Thread(target=take, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 3
    assert (turns._free, list(turns._waiting)) == (3, [])


def test_what_a_call_reads_before_its_commit_waits_for_no_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait to write in the meantime."""

    def create(change: Change) -> int:
        change.confirm = store.experiments
        return int(store.create_experiment(config={}).id)

    with open_store(f"sqlite:///{tmp_path}/det.db") as opened, ExitStack() as reading:
        store: Any = opened
        monkeypatch.setattr(store._database, "_wait", 1.0)
        for _ in range(store._database.most_readers):
            reading.enter_context(store._database._reading.take(0))
        assert store.execute(create) == 1
