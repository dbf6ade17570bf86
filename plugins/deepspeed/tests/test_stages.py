"""All stages and modes of DeepSpeed, in one run of two slots."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.usefixtures("deepspeed")]


def test_every_stage_trains_like_one_slot_and_resumes_exactly(tmp_path: Path) -> None:
    script = Path(__file__).with_name("stages.py")
    done = subprocess.run(
        [sys.executable, "-m", "det_core.launch", "deepspeed", "--slots", "2", "--", str(script), str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    checked = ("stage 0", "stage 3", "clipped", "another trial's")
    expected = [f"[rank={rank}] {what} passed" for rank in range(2) for what in checked]
    assert set(expected) <= set(done.stdout.splitlines())
