"""Failure notes of workers, and the one that is reported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from det_core.launch import _failure_notes


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(_failure_notes.NOTES_VARIABLE, str(tmp_path))
    pids = iter(range(100))
    monkeypatch.setattr("os.getpid", lambda: next(pids))
    return tmp_path


def test_the_first_failure_that_is_no_consequence_is_reported(notes: Path) -> None:
    assert _failure_notes.read_first_failure(notes) is None
    for rank, error in enumerate(
        [
            "PeerLost: rank 3 died",
            "RankFailed: rank 3: ValueError: no",
            "RuntimeError: [pair.cc] Connection closed by peer [127.0.0.1]:1",
            "ValueError: no",
            "TypeError: later",
        ]
    ):
        _failure_notes.write_failure_note(rank, 1, error)
    assert str(_failure_notes.read_first_failure(notes)) == "rank 3: ValueError: no"


def test_a_consequence_is_reported_if_there_is_no_other_failure(notes: Path) -> None:
    _failure_notes.write_failure_note(2, 1, "PeerLost: rank 1 was killed")
    _failure_notes.write_failure_note(None, 1, "ConnectionResetError: [Errno 104] Connection reset by peer")
    assert str(_failure_notes.read_first_failure(notes)) == "rank 2: PeerLost: rank 1 was killed"


def test_a_failure_note_is_one_line(notes: Path) -> None:
    _failure_notes.write_failure_note(None, 78, "the config is wrong:\n  line 1\n\n  line 2\n")
    verdict = _failure_notes.read_first_failure(notes)
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
    described = _failure_notes.describe_failure(raised.value, batch, tmp_path)
    assert re.fullmatch(description, described)
    assert bool(_failure_notes.PLACE.search(described)) is (batch is not None)
    here = _failure_notes.describe_failure(raised.value, 1, tmp_path / "elsewhere")
    assert re.search(r" \(batch 1, \w+\.py:\d+\)$", here), "expected the innermost line without any of the user"


def test_a_failure_is_known_by_what_does_not_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    known = "rank 1: ValueError: <T at 0x7f01> in /tmp/det-context-a1/files (batch 3, model_def.py:1)"
    monkeypatch.setenv(_failure_notes.KNOWN_FAILURE, _failure_notes.failure_fingerprint(known))
    again = known.replace("rank 1: ", "").replace("0x7f01", "0xabc").replace("-a1", "-b2")
    assert _failure_notes.is_known_failure(again)
    assert not _failure_notes.is_known_failure(again.replace("batch 3", "batch 4"))


def test_a_worker_that_died_without_a_note_gets_one(tmp_path: Path) -> None:
    code = "import os; from det_core.launch import _failure_notes\nwith _failure_notes.mark_worker_present(3): {}"
    for ending, verdict in (("pass", "None"), ("os.kill(os.getpid(), 9)", "rank 3: the process died")):
        env = {**os.environ, _failure_notes.NOTES_VARIABLE: str(tmp_path)}
        subprocess.run([sys.executable, "-c", code.format(ending)], env=env, timeout=60)
        assert _failure_notes.poll_worker_failures(tmp_path) is (verdict != "None")
        assert str(_failure_notes.read_first_failure(tmp_path)).startswith(verdict)


def test_no_note_is_written_where_nobody_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_failure_notes.NOTES_VARIABLE, raising=False)
    _failure_notes.write_failure_note(0, 1, "ValueError: no")
