"""Failure notes of workers, and the one that is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from det_core.launch import _verdict


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(_verdict.DIRECTORY, str(tmp_path))
    pids = iter(range(100))
    monkeypatch.setattr("os.getpid", lambda: next(pids))
    return tmp_path


def test_the_first_failure_that_is_no_consequence_is_reported(notes: Path) -> None:
    assert _verdict.read(notes) is None
    for rank, error in enumerate(
        [
            "PeerLost: rank 3 died",
            "RankFailed: rank 3: ValueError: no",
            "RuntimeError: [pair.cc] Connection closed by peer [127.0.0.1]:1",
            "ValueError: no",
            "TypeError: later",
        ]
    ):
        _verdict.leave(rank, 1, error)
    assert str(_verdict.read(notes)) == "rank 3: ValueError: no"


def test_a_consequence_is_reported_if_there_is_no_other_failure(notes: Path) -> None:
    _verdict.leave(2, 1, "PeerLost: rank 1 was killed")
    _verdict.leave(None, 1, "ConnectionResetError: [Errno 104] Connection reset by peer")
    assert str(_verdict.read(notes)) == "rank 2: PeerLost: rank 1 was killed"


def test_a_failure_note_is_one_line(notes: Path) -> None:
    _verdict.leave(None, 78, "the config is wrong:\n  line 1\n\n  line 2\n")
    verdict = _verdict.read(notes)
    assert verdict
    assert (str(verdict), verdict.code) == ("the config is wrong:; line 1; line 2", 78)


def test_a_worker_that_died_without_a_note_gets_one(tmp_path: Path) -> None:
    code = "import os; from det_core.launch import _verdict\nwith _verdict.present(3): {}"
    for ending, verdict in (("pass", "None"), ("os.kill(os.getpid(), 9)", "rank 3: the process died")):
        env = {**os.environ, _verdict.DIRECTORY: str(tmp_path)}
        subprocess.run([sys.executable, "-c", code.format(ending)], env=env, timeout=60)
        assert _verdict.look(tmp_path) is (verdict != "None")
        assert str(_verdict.read(tmp_path)).startswith(verdict)


def test_no_note_is_written_where_nobody_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_verdict.DIRECTORY, raising=False)
    _verdict.leave(0, 1, "ValueError: no")
