"""Failure notes of workers, and the one that is reported."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from det_core.core import failure_notes


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(failure_notes.NOTES_VARIABLE, str(tmp_path))
    pids = iter(range(100))
    monkeypatch.setattr("os.getpid", lambda: next(pids))
    return tmp_path


def test_the_first_failure_that_is_no_consequence_is_reported(notes: Path) -> None:
    assert failure_notes.read_first_failure(notes) is None
    for rank, error in enumerate(
        [
            "PeerLost: rank 3 died",
            "RankFailed: rank 3: ValueError: no",
            "RuntimeError: [pair.cc] Connection closed by peer [127.0.0.1]:1",
            "ValueError: no",
            "TypeError: later",
        ]
    ):
        failure_notes.write_failure_note(rank, 1, error)
    assert str(failure_notes.read_first_failure(notes)) == "rank 3: ValueError: no"


def test_a_consequence_is_reported_if_there_is_no_other_failure(notes: Path) -> None:
    failure_notes.write_failure_note(2, 1, "PeerLost: rank 1 was killed")
    failure_notes.write_failure_note(None, 1, "ConnectionResetError: [Errno 104] Connection reset by peer")
    assert str(failure_notes.read_first_failure(notes)) == "rank 2: PeerLost: rank 1 was killed"


def test_of_equal_failures_that_which_names_the_batch_is_reported(notes: Path) -> None:
    for rank, error in (
        (1, "ValueError: no"),
        (2, "TypeError: x (batch 4, m.py:7)"),
        (0, "ValueError: no (batch 4, m.py:7)"),
    ):
        failure_notes.write_failure_note(rank, 1, error)
    assert str(failure_notes.read_first_failure(notes)) == "rank 0: ValueError: no (batch 4, m.py:7)"


def test_a_failure_note_is_one_line(notes: Path) -> None:
    failure_notes.write_failure_note(None, 78, "the config is wrong:\n  line 1\n\n  line 2\n")
    verdict = failure_notes.read_first_failure(notes)
    assert verdict
    assert (str(verdict), verdict.code) == ("the config is wrong:; line 1; line 2", 78)


@pytest.mark.parametrize(
    ("code", "batch", "description"),
    [
        ("import json\njson.loads('{')", 30, r"JSONDecodeError: .* \(batch 30, model_def.py:2\)"),
        ("raise ValueError('no\\n number')", 0, r"ValueError: no; number \(batch 0, model_def.py:1\)"),
        ("raise ValueError('no')", None, "ValueError: no"),
    ],
)
def test_a_failure_names_the_batch_and_the_line_of_the_users_code(
    tmp_path: Path, code: str, batch: int | None, description: str
) -> None:
    with pytest.raises(ValueError) as raised:
        exec(compile(code, tmp_path / "model_def.py", "exec"))
    described = failure_notes.describe_failure(raised.value, batch, tmp_path)
    assert re.fullmatch(description, described)
    assert bool(failure_notes.PLACE.search(described)) is (batch is not None)
    here = failure_notes.describe_failure(raised.value, 1, tmp_path / "elsewhere")
    assert re.search(r" \(batch 1, \w+\.py:\d+\)$", here), "expected the innermost line without any of the user"


def test_an_error_that_names_batches_keeps_its_own_place() -> None:
    place = failure_notes.PLACE.search("ValueError: bad (batch 3, of data:1): x (batch 4, my (1).py:7)")
    assert place and place.groupdict() == {"batch": "4", "file": "my (1).py", "line": "7"}
    begin = time.process_time()
    assert failure_notes.PLACE.search(" (batch 1, x" * 20_000) is None
    assert time.process_time() - begin < 20, "it takes a minute if each beginning is read up to the end"


def test_a_failure_is_known_by_what_does_not_vary() -> None:
    fingerprint = failure_notes.failure_fingerprints
    known = "rank 1: ValueError: <T at 0x7f01> in /tmp/det-context-a1/files (batch 3, model_def.py:1)"
    again = known.replace("rank 1: ", "").replace("0x7f01", "0xabc").replace("-a1", "-b2")
    assert fingerprint(again) == fingerprint(known)
    assert fingerprint(again) != fingerprint(again.replace("batch 3", "batch 4"))


@pytest.fixture
def end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that does with an exception what the end of a worker does, and returns what it prints."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)

    def end(error: ValueError, rank: int | None = None, batch: int | None = 3) -> str:
        for _ in range(2):  # by the core context and by the worker
            failure_notes.report_uncaught_error(rank, batch)
        try:
            raise error
        except ValueError:
            sys.excepthook(*sys.exc_info())
        return capsys.readouterr().err

    return end


def test_a_traceback_that_the_run_before_has_shown_is_left_out(
    monkeypatch: pytest.MonkeyPatch, end: Callable[..., str]
) -> None:
    said = end(ValueError("no"))
    assert said.count(failure_notes.FAILURE_PREFIX) == said.count("Traceback") == 1
    description = said.splitlines()[0].removeprefix(failure_notes.FAILURE_PREFIX)
    monkeypatch.setenv(failure_notes.KNOWN_FAILURE, failure_notes.failure_fingerprints(description))
    assert "Traceback" not in end(ValueError("no")) + end(ValueError("no"), batch=None)
    assert "Traceback" in end(ValueError("no"), batch=4)


def test_a_traceback_is_whole_although_the_launcher_ends_the_worker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = list[int]()

    def show(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        print("all of it")

    before = signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    monkeypatch.setattr(sys, "excepthook", show)
    failure_notes.report_uncaught_error(0, 3)
    sys.excepthook(ValueError, ValueError("no"), None)
    assert (capsys.readouterr().out, ended) == ("all of it\n", [])
    signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)
    assert ended == [signal.SIGTERM]


def test_ranks_with_the_same_error_show_one_traceback(notes: Path, end: Callable[..., str]) -> None:
    assert "Traceback" in end(ValueError("no"), rank=1)
    assert (
        end(ValueError("no"), rank=0, batch=None)
        == "det: the same error as that of another rank, which shows the traceback\n"
    )
    assert "Traceback" in end(ValueError("another"), rank=2)
    failure = failure_notes.read_first_failure(notes)
    assert failure and str(failure).startswith("rank 1: ValueError: no (batch 3, ")


def test_a_worker_that_died_without_a_note_gets_one(tmp_path: Path) -> None:
    code = "import os; from det_core.core import failure_notes\nwith failure_notes.mark_worker_present(3): {}"
    for ending, verdict in (("pass", "None"), ("os.kill(os.getpid(), 9)", "rank 3: the process died")):
        env = {**os.environ, failure_notes.NOTES_VARIABLE: str(tmp_path)}
        subprocess.run([sys.executable, "-c", code.format(ending)], env=env, timeout=60)
        assert failure_notes.poll_worker_failures(tmp_path) is (verdict != "None")
        assert str(failure_notes.read_first_failure(tmp_path)).startswith(verdict)


def test_no_note_is_written_where_nobody_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(failure_notes.NOTES_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    failure_notes.write_failure_note(0, 1, "ValueError: no")
    assert list(tmp_path.iterdir()) == []
