"""All jobs of one class of tests; what several tests look at is trained once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from det_core.testing._job import Job
from det_core.tracking import open_store

if TYPE_CHECKING:
    from typing_extensions import Self

AnyJob = TypeVar("AnyJob", bound=Job)


class Jobs(ExitStack, Generic[AnyJob]):
    """Makes jobs, and ends them at its end.

    Args:
        job: makes one, of what `Job` takes first: the record, a directory and a config.
        configs: of each trial, by its name.
    """

    def __init__(self, directory: Path, job: Callable[..., AnyJob], configs: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__()
        self._directory, self._job, self._configs = directory, job, configs
        self._undisturbed: dict[tuple[str, int], AnyJob] = {}

    def __enter__(self) -> Self:
        self._store = self.enter_context(open_store(f"sqlite:///{self._directory / 'det.db'}"))
        return self

    def make(self, trial: str, **keys: Any) -> AnyJob:
        """A job that has not begun; keywords are keys of its config."""
        job = self._job(self._store, self._directory, {**self._configs[trial], **keys})
        self.callback(job.close)
        return job

    def undisturbed(self, trial: str, slots: int) -> AnyJob:
        """A job that nothing happens to, always the same; it may be training still."""
        if (trial, slots) not in self._undisturbed:
            job = self._undisturbed[trial, slots] = self.make(trial)
            job.start_alone() if slots == 1 else job.start(slots)
        return self._undisturbed[trial, slots]
