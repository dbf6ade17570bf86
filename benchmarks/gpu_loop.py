"""Overhead of det's training loop on a GPU, as ratios to a plain loop that trains the same models.

    python benchmarks/gpu_loop.py [DEVICE]

The processes take turns, as in ``trainers.py``. A round ends when the GPU has finished its work. DEVICE is "cuda" or
"cpu", which shows that the benchmark works.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from trainers import WRITING, Case, Contender, Turns, build, compare, forever, loader, loss_of, optimizer_of, trial_of

CASES = {
    "mlp-100": Case("mlp", 100, 2000),
    "wide-100": Case("wide", 100, 2000),
    "cnn-100": Case("cnn", 100, 1000),
}


def plain(case: Case, turn: Callable[[], None], device: str) -> None:
    model, batches = build(case.kind).to(device), loader()
    optimizer = optimizer_of(model)
    for batch in forever(batches):
        turn()
        optimizer.zero_grad()
        loss_of(model, [part.to(device, non_blocking=True) for part in batch]).backward()
        optimizer.step()


def det(case: Case, turn: Callable[[], None], device: str) -> None:
    import det_torch

    trial_of(det_torch)(case, turn)


TRAINERS = {"plain": plain, "det": det}


class GpuTurns(Turns):
    """Turns whose rounds include the work that the GPU has yet to do."""

    def __call__(self) -> None:
        if (self._count + 1) % self._batches == 0 and torch.cuda.is_available():
            torch.cuda.synchronize()
        super().__call__()


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        name, title, device = sys.argv[2:]
        case = CASES[title]
        torch.set_num_threads(1)
        TRAINERS[name](case, GpuTurns(case.batches, WRITING), device)
        return
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        print("the overhead of the loop on a GPU was not measured, because this machine has no GPU")
        return
    print(torch.cuda.get_device_name() if device == "cuda" else "CPU")
    with tempfile.TemporaryDirectory() as directory:
        for title in CASES:
            commands = {name: [sys.executable, __file__, "--train", name, title, device] for name in TRAINERS}
            compare(
                [Contender(name, command, Path(directory)) for name, command in commands.items()],
                f"{title}, {CASES[title].batches} batches each",
            )


if __name__ == "__main__":
    main()
