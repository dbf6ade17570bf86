"""Time for which a checkpoint of a 500 MB model blocks the training loop.

    python benchmarks/checkpoint_stall.py

The cases take turns in one process. They are a copy of the state into memory that was used before (the lower limit),
det's snapshot, ``torch.save``, and ``dcp.async_save`` with a stager that is kept. Ratios to the copy are medians over
rounds. The last column is the time of training steps after the checkpoint, while det and DCP write, divided by the time
of the same steps before it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from det_torch._checkpoints import _training_state
from det_torch._checkpoints._staging import HostStaging
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

ROUNDS = 9
WIDTH, LAYERS = 2048, 30
"""30 x 2048 x 2048 float32 = 503 MB."""


def copy_of(state: Any, buffers: list[torch.Tensor]) -> None:
    for buffer, tensor in zip(buffers, state.values(), strict=True):
        buffer.copy_(tensor)


def main() -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    small = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    buffers = [torch.empty_like(tensor).zero_() for tensor in state.values()]
    staging, stager, thread = (
        HostStaging(),
        DefaultStager(StagingOptions(False, False, False, False)),
        ThreadPoolExecutor(1),
    )
    scratch = Path(tempfile.mkdtemp())

    def steps() -> float:
        start = time.perf_counter()
        for _ in range(200):
            small(torch.randn(64, 256)).sum().backward()
        return time.perf_counter() - start

    def det(path: Path) -> Future[Any]:
        path.mkdir()
        return thread.submit(_training_state.write_training_state, staging.copy({"models_state_dict": [state]}), path)

    def async_save(path: Path) -> Future[Any]:
        return dcp.async_save(dict(state), checkpoint_id=path, async_stager=stager)  # type: ignore[return-value]

    ways: dict[str, Callable[[Path], Any]] = {
        "a copy": lambda path: copy_of(state, buffers),
        "det": det,
        "torch.save": lambda path: torch.save(state, path),
        "dcp.async_save": async_save,
    }
    stalls: dict[str, list[float]] = {name: [] for name in ways}
    beside: dict[str, list[float]] = {name: [] for name in ways}
    steps()
    for number in range(ROUNDS + 1):
        for name, way in ways.items():
            path = scratch / f"{name}-{number}"
            alone = steps()
            start = time.perf_counter()
            writing = way(path)
            stall = time.perf_counter() - start
            slowed = steps()
            if isinstance(writing, Future):
                writing.result()
            if number:  # the first round allocates buffers
                stalls[name].append(stall)
                beside[name].append(slowed / alone)
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    shutil.rmtree(scratch)
    for name, times in stalls.items():
        ratio = statistics.median(time / base for time, base in zip(times, stalls["a copy"], strict=True))
        slower = statistics.median(beside[name])
        print(f"{name:15}{statistics.median(times) * 1e3:8.1f} ms  x copy {ratio:6.2f}  steps {slower:5.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
