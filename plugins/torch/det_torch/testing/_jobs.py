"""All jobs of one class of tests; what several tests look at is trained once."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from det_core.tracking import open_store
from det_torch.testing._job import Job

if TYPE_CHECKING:
    from typing_extensions import Self

    from det_torch.testing._suite import AdapterSuite

ONE_MODEL, ADVERSARIES = "one model", "adversaries"
"""The trials: det drives the one, the other drives itself."""


class Jobs(ExitStack):
    """Makes jobs, and ends them at its end."""

    def __init__(self, directory: Path, suite: AdapterSuite) -> None:
        super().__init__()
        self._directory, self._suite = directory, suite
        hparams = {"global_batch_size": 8, **({"clip_grad_l2_norm": 0.5} if suite.clips else {})}
        alike = {"hyperparameters": hparams, "distributed": {"backend": suite.backend, **suite.options}}
        self._configs: dict[str, dict[str, Any]] = {
            ONE_MODEL: {**alike, "entrypoint": "model_def:OneModel"},
            ADVERSARIES: {
                **alike,
                "entrypoint": "model_def:Adversaries" if suite.full_weights else "model_def:AdversariesInParts",
                "optimizations": {"aggregation_frequency": 2},
            },
        }
        self._undisturbed: dict[tuple[str, int], Job] = {}

    def __enter__(self) -> Self:
        self._store = self.enter_context(open_store(f"sqlite:///{self._directory / 'det.db'}"))
        return self

    def make(self, trial: str, **keys: Any) -> Job:
        """A job that has not begun; keywords are keys of its config."""
        config = {**self._configs[trial], **keys}
        job = Job(self._store, self._directory, config, weights=self._suite.weights, limit=self._suite.limit)
        self.callback(job.close)
        return job

    def undisturbed(self, trial: str, slots: int) -> Job:
        """A job that nothing happens to, always the same; on several slots it may be training still."""
        if (trial, slots) not in self._undisturbed:
            job = self.make(trial)
            self._undisturbed[trial, slots] = job.train_here() if slots == 1 else job.start(slots)
        return self._undisturbed[trial, slots]
