"""Ends of workers, in this process."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from det_core import core
from det_core.core import DistributedContext, failure_notes
from det_core.errors import ConfigError, InvalidTrial, PeerLate, PeerLost
from det_core.interfaces.backend import Backend, NodePlacement, WorkerCommand, WorkerRanks
from det_core.launch import backends, worker

from ..forked_child import ending_children

Read = Callable[[], "tuple[str, int] | None"]


class Lonely(Backend):
    """Backend of two workers, of which the other one never starts."""

    def start(self, place: NodePlacement, command: Sequence[str]) -> WorkerCommand:
        raise NotImplementedError

    def ranks(self) -> WorkerRanks:
        return WorkerRanks(rank=1, size=2, local_rank=1, local_size=2, cross_rank=0, cross_size=1)


@pytest.fixture
def read_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return a function that reads the failure note of this process, with its code."""
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setenv(failure_notes.NOTES_VARIABLE, str(notes))

    def read() -> tuple[str, int] | None:
        assert list(notes.glob("*.present")) == []
        failure = failure_notes.read_first_failure(notes)
        return failure and (str(failure), failure.code)

    return read


@pytest.fixture(autouse=True)
def _logging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)


def test_a_worker_that_meets_nobody_leaves_a_note_and_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, read_note: Read, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backends, "open_backend", lambda name, options: Lonely())
    monkeypatch.setattr(backends, "parse_options", lambda name, block: None)
    variables = {
        backends.BACKEND_VARIABLE: "lonely",
        backends.OPTIONS_VARIABLE: json.dumps({"timeout": 0.1}),
        backends.CHIEF_VARIABLE: "127.0.0.1",
        backends.PORT_VARIABLE: "1",
        "TORCHELASTIC_RUN_ID": str(os.getpid()),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert worker.main("m:T") == 1
    note = read_note()
    assert note and note[0].startswith("rank 1: rank 0 could not be reached at ") and note[1] == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "code", "note"),
    [
        (ConfigError("no such key"), 78, ("no such key", 78)),
        (InvalidTrial("no such thing"), 78, ("no such thing", 78)),
        (ValueError("no\nnumber"), None, ("ValueError: no; number", 1)),
        (SystemExit("stopped"), None, ("it exited with 'stopped'", 1)),
        (SystemExit(0), None, None),
    ],
    ids=["config", "trial", "error", "exit", "success"],
)
def test_a_worker_that_fails_leaves_a_note(
    monkeypatch: pytest.MonkeyPatch,
    read_note: Read,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int | None,
    note: tuple[str, int] | None,
) -> None:
    """The user reads errors that a restart would meet again without a traceback."""

    def fail(**_: Any) -> None:
        raise error

    monkeypatch.setattr(core, "init", fail)
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    if code:
        assert worker.main("m:T") == code
        assert capsys.readouterr().err == f"{error}\n"
    else:
        with pytest.raises(type(error)) as raised:
            worker.main("m:T")
        sys.excepthook(raised.type, raised.value, raised.tb)
    assert read_note() == note


@pytest.mark.parametrize("error", [SystemExit(0), SystemExit(1), ValueError("of the child")], ids=repr)
def test_the_end_of_a_forked_child_is_not_that_of_the_worker(
    monkeypatch: pytest.MonkeyPatch, read_note: Read, tmp_path: Path, error: BaseException
) -> None:
    """The code of a trial may fork, and leave all blocks in the child."""
    left: list[str] = []

    def train(**_: Any) -> None:
        with worker.refused_exits():
            if not (child := os.fork()):
                raise error
            os.waitpid(child, 0)
            left.extend(file.suffix for file in (tmp_path / "notes").iterdir())
            raise KeyboardInterrupt

    monkeypatch.setattr(core, "init", train)
    with ending_children(), pytest.raises(KeyboardInterrupt):
        worker.main("m:T")
    assert left == [".present"]
    assert read_note() is None


@pytest.mark.parametrize(("code", "error"), [(0, InvalidTrial), (None, InvalidTrial), (3, SystemExit)])
def test_an_exit_of_the_code_during_training_is_not_its_end(code: int | None, error: type[BaseException]) -> None:
    said = r"sys\.exit\(\).*set_stop_requested" if error is InvalidTrial else "3"
    with pytest.raises(error, match=said), worker.refused_exits():
        sys.exit(code)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[DistributedContext]]:
    """Return two connected workers, in threads of this process."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", f"pair-{os.getpid()}")
    monkeypatch.setattr(worker, "_ROLL_CALL_SECONDS", 1.0)
    workers: list[DistributedContext] = []

    def join(rank: int) -> None:
        place = {"rank": rank, "local_rank": rank, "size": 2, "local_size": 2, "cross_rank": 0, "cross_size": 1}
        workers.append(DistributedContext(**place, pub_port=12351))

    threads = [threading.Thread(target=join, args=[rank]) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield sorted(workers, key=lambda one: one.rank)
    for one in workers:
        one.close()


def attend(one: DistributedContext | None, error: PeerLost, timeout: float | None = 30.0) -> PeerLost:
    """Raise an error of a framework's collective, and return the one that it becomes."""
    with pytest.raises(PeerLost) as raised, worker.name_stuck_workers(one, timeout):
        raise error
    return raised.value


def test_a_worker_that_misses_the_roll_call_is_stuck(pair: list[DistributedContext]) -> None:
    """A framework's own collective reports a timeout only, which all healthy workers see at the same time."""
    over = threading.Event()

    def hang() -> None:
        with worker.name_stuck_workers(pair[1], 30.0):
            over.wait(60)

    thread = threading.Thread(target=hang)
    thread.start()
    late = attend(pair[0], PeerLost("a collective took too long", None))
    over.set()
    thread.join()
    assert isinstance(late, PeerLate) and late.rank == 1
    assert str(late).startswith("rank 1 is stuck: the others waited for it for 30 s; raise distributed.timeout")


def test_an_error_that_names_a_worker_or_is_that_of_all_is_kept(pair: list[DistributedContext]) -> None:
    for error in (PeerLost("rank 7 died", 7), PeerLost("a collective took too long", None)):
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(attend, pair, [error] * 2)) == [error] * 2


def test_without_a_timeout_or_others_there_is_no_roll_call(pair: list[DistributedContext]) -> None:
    error = PeerLost("a collective took too long", None)
    assert attend(None, error) is attend(pair[0], error, None) is error
