"""Trials that are started as a runner does. Trials on one slot train in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from det_testing import trial_job

from det_core import core
from det_torch._run import run_trial
from det_torch.testing.code import model_def

if TYPE_CHECKING:
    from typing_extensions import Self

CODE = Path(__file__).with_name("code")


class TorchJob(trial_job.TrialJob):
    """Training of a `PyTorchTrial` of `model_def` with the failures of `model_def.FAILURES`."""

    def train_here(self, failure: trial_job.InjectedFailure | None = None) -> Self:
        """Train on one slot in this process, from the latest checkpoint."""
        with self.training_here(failure), _one_thread(), core.init() as context:
            run_trial(getattr(model_def, str(context.config.entrypoint).partition(":")[2]), context)
        return self

    def start_alone(self) -> Self:
        return self.train_here()

    def parameters(self) -> Any:
        """Return `weights` without the buffer whose values differ between slots."""
        return [{name: one for name, one in model.items() if name != model_def.BUFFER} for model in self.weights()]

    def own(self) -> list[Any]:
        """Return the metrics of every batch that depend only on each slot's random numbers and callbacks."""
        return [[row[name] for name in ("at", "rank", "drawn", "memory")] for row in self.rows()]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit torch to one thread, as in the workers, because the rounding of sums depends on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
