"""Trials as objects: choose their checkpoints, read their metrics and logs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from det_core.errors import NoCheckpoint, RecordNotFound
from det_core.experimental._checkpoint import Checkpoint
from det_core.experimental._ranking import ranked
from det_core.experimental._record import Recorded, open_record
from det_core.interfaces.tracking import State, Trial
from det_core.tracking.control import ask_to_kill_trial, log_lines


@dataclass(frozen=True)
class TrialMetrics:
    """What a trial reported for one group at one batch."""

    trial_id: int
    trial_run_id: int
    steps_completed: int
    end_time: datetime | None
    metrics: Mapping[str, Any]
    batch_metrics: Sequence[Mapping[str, Any]] | None = None
    group: str | None = None


class TrialReference(Recorded):
    """A trial in the record. Made by `Determined.get_trial` and `ExperimentReference.list_trials`.

    Example:
        >>> trial = Determined().get_trial(1)
        >>> trial.hparams["lr"]
        0.1

    Args:
        trial_id: its id.
        master: the URL of the record that it is in; empty = the embedded one.

    Attributes:
        id: its id.
    """

    def __init__(self, trial_id: int, master: str) -> None:
        self.id = trial_id
        self._master = open_record(master).url

    def __repr__(self) -> str:
        return f"TrialReference(id={self.id})"

    @property
    def experiment_id(self) -> int:
        return self._record.experiment_id

    @property
    def hparams(self) -> dict[str, Any]:
        """Hyperparameter names to values."""
        return dict(self._record.hparams)

    @property
    def state(self) -> State:
        """As it is now."""
        return self._record.state

    def top_checkpoint(self, sort_by: str | None = None, smaller_is_better: bool | None = None) -> Checkpoint:
        """Its checkpoint with the best validation.

        Args:
            sort_by: the validation metric that decides; by default the one of the config's searcher.
            smaller_is_better: whether the smallest value is the best; by default the config's ``searcher`` decides.
                Without ``sort_by`` it is ignored.

        Raises:
            NoCheckpoint: none was validated with a finite value of that metric. NaN never wins.
            ValueError: only one of the two is given.
        """
        return self.select_checkpoint(best=True, sort_by=sort_by, smaller_is_better=smaller_is_better)

    def select_checkpoint(
        self,
        latest: bool = False,
        best: bool = False,
        uuid: str | None = None,
        sort_by: str | None = None,
        smaller_is_better: bool | None = None,
    ) -> Checkpoint:
        """One of its checkpoints: exactly one of ``latest``, ``best`` and ``uuid`` says which.

        Example:
            >>> trial = Determined().get_trial(1)
            >>> trial.select_checkpoint(latest=True).uuid, trial.select_checkpoint(best=True).uuid
            ('last-one', 'best-one')

        Args:
            latest: the most recent one.
            best: the one with the best validation.
            uuid: the one with this id.
            sort_by: with ``best``, as for `top_checkpoint`, and so is ``smaller_is_better``.
            smaller_is_better: see ``sort_by``.

        Raises:
            NoCheckpoint: there is none.
            ValueError: the arguments do not go together.
        """
        _check_selection(latest=latest, best=best, uuid=uuid, sort_by=sort_by)
        if uuid is not None:
            chosen = self._checkpoint(uuid)
        elif best:
            experiment = self._store.experiment(self.experiment_id)
            chosen = ranked(self._store, experiment, sort_by, smaller_is_better, trial_id=self.id)[0]
        else:
            completed = self._store.checkpoints(trial_id=self.id)
            if not completed:
                raise NoCheckpoint(f"trial {self.id} has no completed checkpoint; it is {self.state.value}")
            chosen = completed[-1]
        return Checkpoint._of(self._store, [chosen])[0]

    def list_checkpoints(self) -> list[Checkpoint]:
        """All that are complete, oldest first."""
        return Checkpoint._of(self._store, self._store.checkpoints(trial_id=self.id))

    get_checkpoints = list_checkpoints

    def iter_metrics(self, group: str | None = None) -> Iterator[TrialMetrics]:
        """What it reported, by batch.

        Example:
            >>> trial = Determined().get_trial(1)
            >>> [(report.steps_completed, report.metrics["accuracy"]) for report in trial.iter_metrics("validation")]
            [(100, 0.5), (200, 0.75), (300, 0.7)]

        Args:
            group: ``training``, ``validation`` or another one that the trial reports; None = all.
        """
        for report in self._store.metrics(self.id, group=group):
            yield TrialMetrics(
                trial_id=report.trial_id,
                trial_run_id=report.run_id,
                steps_completed=report.steps_completed,
                end_time=report.time,
                metrics=report.metrics,
                batch_metrics=report.batch_metrics,
                group=report.group,
            )

    def logs(self, follow: bool = False, *, head: int | None = None, tail: int | None = None) -> Iterator[str]:
        """What it printed, a line at a time, each with its newline.

        Args:
            follow: go on until its experiment is over.
            head: only the first so many lines.
            tail: only the last so many of those there are now; not with ``follow``.

        Raises:
            ValueError: ``tail`` with ``head`` or ``follow``.
        """
        if tail is not None and (follow or head is not None):
            raise ValueError("tail goes neither with head nor with follow; pass one of them")
        lines = log_lines(self._store, self.experiment_id, self.id, follow=follow)
        wanted = islice(lines, head) if tail is None else deque(lines, tail)
        return (f"{line.log}\n" for line in wanted)

    iter_logs = logs

    def kill(self) -> None:
        """Ask its runner to end it at once; the other trials go on.

        Raises:
            TrackingError: nobody runs it.
        """
        ask_to_kill_trial(self._store, self.id)

    @property
    def _record(self) -> Trial:
        return self._store.trial(self.id)

    def _checkpoint(self, uuid: str) -> Any:
        try:
            found = self._store.checkpoint(uuid)
        except RecordNotFound as error:
            raise NoCheckpoint(str(error)) from error
        if found.trial_id != self.id:
            raise NoCheckpoint(f"checkpoint {uuid} is of trial {found.trial_id}, not of trial {self.id}")
        return found


def _check_selection(*, latest: bool, best: bool, uuid: str | None, sort_by: str | None) -> None:
    given = [name for name, value in (("latest", latest), ("best", best), ("uuid", uuid is not None)) if value]
    if len(given) != 1:
        raise ValueError(f"exactly one of latest=True, best=True and uuid=... says which; given: {given or 'none'}")
    if sort_by is not None and not best:
        raise ValueError(f"sort_by is for best=True, but {given[0]} was given")
