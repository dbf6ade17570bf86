"""Trials that are started as a runner does. Trials on one slot train in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from det_core import core
from det_core.core._cluster_info import get_cluster_info
from det_core.testing import trial_job
from det_core.testing.runs import begin_run
from det_torch._run import run_trial
from det_torch.testing.code import model_def

if TYPE_CHECKING:
    from typing_extensions import Self

CODE = Path(__file__).with_name("code")


class TorchJob(trial_job.TrialJob):
    """Training of a `PyTorchTrial` of `model_def` with the failures of `model_def.FAILURES`."""

    def train_here(self, failure: trial_job.InjectedFailure | None = None) -> Self:
        """Train on one slot in this process, from the latest checkpoint."""
        begin_run(self._store, self.trial_id, self._directory)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self._environment(failure).items():
                patch.setenv(name, value)
            get_cluster_info.cache_clear()
            with _one_thread(), core.init() as context:
                run_trial(getattr(model_def, self._config["entrypoint"].partition(":")[2]), context)
        get_cluster_info.cache_clear()
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
