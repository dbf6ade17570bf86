"""Gradients in unusual circumstances, all in one run of two slots."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = str(Path(__file__).with_name("exchange.py"))


@pytest.mark.integration
@pytest.mark.usefixtures("horovod")
def test_gradients_become_those_of_all_slots(tmp_path: Path) -> None:
    launch = ["-m", "det_core.launch", "horovod", "--slots=2", "--", PROGRAM]
    environment = {**os.environ, "HOROVOD_CYCLE_TIME": "2", "OMP_NUM_THREADS": "1", "DET_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, *launch], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"[rank={rank}] rank {rank} is content" in done.stdout for rank in range(2))
