"""Collection of the jobs of one test class, which trains shared jobs only once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from det_core.tracking import open_store
from det_testing.fork_server import run_fork_server
from det_testing.trial_job import TrialJob

if TYPE_CHECKING:
    from typing_extensions import Self

AnyJob = TypeVar("AnyJob", bound=TrialJob)
"""Type of the jobs that a factory makes."""


class JobFactory(ExitStack, Generic[AnyJob]):
    """Factory of jobs, which ends all of them when it is closed.

    Args:
        directory: directory for the files of all jobs.
        job: makes a job from the first arguments of `TrialJob` (the tracking store, a directory and a config) and from
            ``forked``.
        configs: names of trials mapped to their configs.
        modules: modules that workers import only once, for a framework whose processes can be forks.
    """

    def __init__(
        self,
        directory: Path,
        job: Callable[..., AnyJob],
        configs: Mapping[str, Mapping[str, Any]],
        modules: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._directory, self._job, self._configs, self._modules = directory, job, configs, modules
        self._forked: list[str] = []
        self._undisturbed: dict[tuple[str, int], AnyJob] = {}

    def __enter__(self) -> Self:
        self._store = self.enter_context(open_store(f"sqlite:///{self._directory / 'det.db'}"))
        if self._modules:
            self._forked = self.enter_context(run_fork_server(self._modules))
        return self

    def make(self, trial: str, **keys: Any) -> AnyJob:
        """Return a new job that has not started.

        Args:
            trial: a key of ``configs``.
            keys: further keys of its config.
        """
        job = self._job(self._store, self._directory, {**self._configs[trial], **keys}, forked=self._forked)
        self.callback(job.close)
        return job

    def undisturbed(self, trial: str, slots: int) -> AnyJob:
        """Return the job that trains without incidents. It is shared between tests, and may still be training.

        Args:
            trial: a key of ``configs``.
            slots: number of workers.
        """
        if (trial, slots) not in self._undisturbed:
            job = self._undisturbed[trial, slots] = self.make(trial)
            job.start_alone() if slots == 1 else job.start(slots)
        return self._undisturbed[trial, slots]
