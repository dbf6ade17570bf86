"""Exchange of gradients in unusual cases, for each framework in one run of two slots."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.integration
@pytest.mark.usefixtures("horovod")
@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_gradients_are_averaged_over_all_slots(framework: str, tmp_path: Path) -> None:
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    launch = ["-m", "det_core.launch", "horovod", "--slots=2", "--", str(HERE / f"exchange_{framework}.py")]
    environment = {**os.environ, "HOROVOD_CYCLE_TIME": "2", "OMP_NUM_THREADS": "1", "DET_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, *launch], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"[rank={rank}] rank {rank} passed" in done.stdout for rank in range(2))
