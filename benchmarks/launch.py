"""Time from the start of a launch to its end, with code up to the context limit.

A launch on this machine and one through the pipe of a node agent are compared with what both must do in any case, which
is to unpack the code and run the command.

python benchmarks/launch.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from det_cluster.agent_group import AgentGroup

from det_core.interfaces.launcher import PYTHON, Allocation, LaunchRequest
from det_core.launch.context_archive import MAX_CONTEXT_BYTES, pack_context_dir, unpack_context_dir
from det_core.launch.local import LocalConfig, LocalLauncher

SIZES = {"1 KiB": 1 << 10, "10 MiB": 10 << 20, "limit": MAX_CONTEXT_BYTES - (1 << 20)}
AGENT = [sys.executable, "-m", "det_cluster.agent_program"]
SCRIPT = "pass"
ROUNDS = 3


def pack(size: int) -> bytes:
    """Return an archive with random files, which gzip cannot shrink."""
    with tempfile.TemporaryDirectory() as directory:
        for number in range(10):
            Path(directory, str(number)).write_bytes(os.urandom(size // 10))
        return pack_context_dir(Path(directory))


def request(code: bytes) -> LaunchRequest:
    return LaunchRequest(
        key="benchmark",
        argv=[PYTHON, "-c", SCRIPT],
        code=code,
        info={"cluster.json": {}},
        slots=1,
        log=lambda rank, stream, text: None,
        call=lambda method, body: b"",
    )


def launch(start: Callable[[LaunchRequest], Allocation], code: bytes) -> float:
    """Return the seconds from the start to the end of a launch."""
    began = time.perf_counter()
    with closing(start(request(code))) as allocation:
        end = allocation.wait(600)
        seconds = time.perf_counter() - began
    assert end is not None, "the launch has not ended"
    assert end.code == 0, end
    return seconds


def bare(code: bytes) -> float:
    """Return the seconds to unpack the code and run the command."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        unpack_context_dir(code, Path(directory))
        subprocess.run([sys.executable, "-c", SCRIPT], cwd=directory, check=True)
        return time.perf_counter() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.environ["DET_HOME"] = os.environ["DET_SLOTS_DIR"] = directory
        launchers: dict[str, Callable[[LaunchRequest], Allocation]] = {
            "local": LocalLauncher(LocalConfig()).start,
            "node agent": lambda request: AgentGroup(request, [AGENT]),
        }
        print(f"{'code':>8} {'unpack and run':>15} " + " ".join(f"{name:>24}" for name in launchers))
        for label, size in SIZES.items():
            code = pack(size)
            rounds = [[bare(code), *(launch(start, code) for start in launchers.values())] for _ in range(ROUNDS)]
            least, *others = (min(column) for column in zip(*rounds, strict=True))
            cells = (f"{value:7.2f} s (+{value - least:5.2f}, {value / least:4.1f}x)" for value in others)
            print(f"{label:>8} {least:>13.2f} s " + " ".join(f"{cell:>24}" for cell in cells))


if __name__ == "__main__":
    main()
