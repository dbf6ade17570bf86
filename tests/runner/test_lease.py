"""Who is alive, for the lease."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from det_core.runner import _lease


def test_a_living_process_has_a_start_time_and_a_dead_one_none() -> None:
    assert int(_lease._start_time(os.getpid())) > 0
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert _lease._start_time(child.pid) == ""  # a zombie
    child.wait()
    assert _lease._start_time(child.pid) == ""


@pytest.mark.parametrize("error", [FileNotFoundError, ProcessLookupError])
def test_a_process_reaped_at_any_moment_is_dead(error: type[OSError], monkeypatch: pytest.MonkeyPatch) -> None:
    # Linux answers ESRCH when it is reaped between open and read; that moment cannot be met on purpose.
    def gone(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(Path, "read_text", gone)
    assert _lease._start_time(1) == ""
