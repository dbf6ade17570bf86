"""Scripts written for DeepSpeed's own launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

SCRIPT = """
import os
from det_core import core

with core.init(distributed=core.DistributedContext.from_deepspeed()) as context:
    ranks = context.distributed.allgather(context.distributed.rank)
    print(ranks, *(os.environ[name] for name in ("LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")))
"""


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "det_core.launch", "deepspeed", "--slots", "2", "--", "train.py"],
        pytest.param(
            ["-m", "determined.launch.deepspeed", "python3", "train.py"],
            marks=pytest.mark.skipif(find_spec("determined") is None, reason="needs det-compat"),
        ),
    ],
    ids=["det", "compat"],
)
def test_a_script_can_make_its_context_from_deepspeed(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env={**os.environ, "DET_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    slots = 2 if "--slots" in command else 1
    for rank in range(slots):
        assert f"[rank={rank}] {list(range(slots))} {slots} 0 1" in done.stdout
