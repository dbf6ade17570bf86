"""SDK class for trials, with their checkpoints, metrics and logs."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from det_core.errors import NoCheckpoint, RecordNotFound
from det_core.experimental._checkpoint import Checkpoint
from det_core.experimental._checkpoint_ranking import rank_checkpoints
from det_core.experimental._frames import make_metrics_frame
from det_core.experimental._shared_store import StoredObject, best_value, open_shared_store
from det_core.interfaces.records import Machine, State, TrialRecord
from det_core.tracking.control import log_lines, request_trial_kill

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class TrialMetrics:
    """Metrics that a trial reported for one group at one batch.

    Attributes:
        trial_id: id of the trial.
        trial_run_id: number of the run that reported them, from 1.
        steps_completed: number of batches trained.
        end_time: time of the report.
        metrics: metric names mapped to values.
        batch_metrics: metrics of each batch since the previous report, oldest first. Trials record arrays and lists of
            numbers in them as ``{count, min, max, mean}``.
        group: ``training``, ``validation`` or another name that the trial reports under.
    """

    trial_id: int
    trial_run_id: int
    steps_completed: int
    end_time: datetime | None
    metrics: Mapping[str, Any]
    batch_metrics: Sequence[Mapping[str, Any]] | None = field(default=None, repr=False)
    group: str | None = None


class TrialReference(StoredObject):
    """A trial in the tracking store. Returned by `Determined.get_trial` and `ExperimentReference.list_trials`.

    Example:
        >>> trial = Determined().get_trial(1)
        >>> trial.hparams["lr"]
        0.1

    Args:
        trial_id: id of the trial.
        master: URL of its tracking store. An empty string stands for the embedded store.

    Attributes:
        id: id of the trial.
    """

    def __init__(self, trial_id: int, master: str) -> None:
        self.id = trial_id
        self._master = open_shared_store(master).url

    @property
    def experiment_id(self) -> int:
        """Id of the trial's experiment."""
        return self._record.experiment_id

    @property
    def hparams(self) -> dict[str, Any]:
        """Hyperparameter names mapped to values."""
        return dict(self._record.hparams)

    @property
    def state(self) -> State:
        """Present state."""
        return self._record.state

    @property
    def machines(self) -> dict[int, list[Machine]]:
        """Machines of each run, the newest run first, in the order of its nodes.

        Example:
            >>> trial = Determined().get_trial(1)
            >>> {run: machines[0].packages["torch"] for run, machines in trial.machines.items()}
            {1: '2.11.0'}
        """
        return self._store.machines(self.id)

    def top_checkpoint(self, sort_by: str | None = None, smaller_is_better: bool | None = None) -> Checkpoint:
        """Return the checkpoint with the best validation.

        Args:
            sort_by: validation metric that decides. By default the searcher's metric.
            smaller_is_better: whether smaller values are better. By default as in the config's searcher. Ignored
                without ``sort_by``.

        Raises:
            NoCheckpoint: no checkpoint was validated with a finite value of that metric. NaN is never the best.
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
        """Return one checkpoint. Exactly one of ``latest``, ``best`` and ``uuid`` selects it.

        Example:
            >>> trial = Determined().get_trial(1)
            >>> trial.select_checkpoint(latest=True).uuid, trial.select_checkpoint(best=True).uuid
            ('last-one', 'best-one')

        Args:
            latest: select the most recent one.
            best: select the one with the best validation.
            uuid: select the one with this id.
            sort_by: with ``best``, as in `top_checkpoint`.
            smaller_is_better: with ``best``, as in `top_checkpoint`.

        Raises:
            NoCheckpoint: no such checkpoint exists.
            ValueError: the arguments contradict each other.
        """
        _check_selection(latest=latest, best=best, uuid=uuid, sort_by=sort_by)
        if uuid is not None:
            chosen = self._checkpoint(uuid)
        elif best:
            experiment = self._store.experiment(self.experiment_id)
            chosen = rank_checkpoints(self._store, experiment, sort_by, smaller_is_better, trial_id=self.id)[0]
        else:
            completed = self._store.checkpoints(trial_id=self.id)
            if not completed:
                raise NoCheckpoint(f"trial {self.id} has no completed checkpoint; it is {self.state.value}")
            chosen = completed[-1]
        return Checkpoint._of(self._store, [chosen])[0]

    def list_checkpoints(self) -> list[Checkpoint]:
        """Return all completed checkpoints, oldest first."""
        return Checkpoint._of(self._store, self._store.checkpoints(trial_id=self.id))

    get_checkpoints = list_checkpoints

    def iter_metrics(self, group: str | None = None) -> Iterator[TrialMetrics]:
        """Yield the reports of the trial by batch.

        Example:
            >>> trial = Determined().get_trial(1)
            >>> [(report.steps_completed, report.metrics["accuracy"]) for report in trial.iter_metrics("validation")]
            [(100, 0.5), (200, 0.75), (300, 0.7)]

        Args:
            group: ``training``, ``validation`` or another name that the trial reports under. None for all.
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

    def metrics_frame(self, group: str | None = None) -> DataFrame:
        """Return the reports of the trial as a pandas data frame with a row per report and a column per metric.

        Example:
            >>> frame = Determined().get_trial(1).metrics_frame("validation")
            >>> frame["accuracy"].max()
            0.75

        Args:
            group: as in `iter_metrics`.

        Raises:
            DetError: pandas is not installed.
        """
        return make_metrics_frame(self._store, [self.id], group)

    def logs(self, follow: bool = False, *, head: int | None = None, tail: int | None = None) -> Iterator[str]:
        """Yield the lines that the trial printed, each with its newline.

        Args:
            follow: continue until the experiment is over.
            head: maximum number of lines from the beginning.
            tail: maximum number of lines from the present end. Not allowed with ``head`` or ``follow``.

        Raises:
            ValueError: ``tail`` is given together with ``head`` or ``follow``, or one of them is no number of lines.
        """
        for name, count in {"head": head, "tail": tail}.items():
            if count is not None and not 0 <= count <= sys.maxsize:
                raise ValueError(f"{name} is {count}; expected a number of lines >= 0")
        if tail is not None and (follow or head is not None):
            raise ValueError("tail cannot be combined with head or follow; pass one of them")
        lines = log_lines(self._store, self.experiment_id, self.id, follow=follow)
        wanted = islice(lines, head) if tail is None else deque(lines, tail)
        return (f"{line.log}\n" for line in wanted)

    iter_logs = logs

    def kill(self) -> None:
        """Ask the runner to end the trial at once. The other trials continue.

        Raises:
            TrackingError: the experiment has no runner.
        """
        request_trial_kill(self._store, self.id)

    @property
    def _record(self) -> TrialRecord:
        return self._store.trial(self.id)

    def _identity(self) -> dict[str, Any]:
        return {"id": self.id}

    def _facts(self) -> dict[str, Any]:
        trial = self._record
        best = best_value(self._store, self._store.experiment(trial.experiment_id), self.id)
        return {
            "experiment_id": trial.experiment_id,
            "state": trial.state,
            "batches": trial.steps_completed,
            "hparams": dict(trial.hparams),
            **best,
        }

    def _checkpoint(self, uuid: str) -> Any:
        try:
            found = self._store.checkpoint(uuid)
        except RecordNotFound as error:
            raise NoCheckpoint(str(error)) from error
        if found.trial_id != self.id:
            raise NoCheckpoint(f"checkpoint {uuid} belongs to trial {found.trial_id}, not to trial {self.id}")
        return found


def _check_selection(*, latest: bool, best: bool, uuid: str | None, sort_by: str | None) -> None:
    given = [name for name, value in (("latest", latest), ("best", best), ("uuid", uuid is not None)) if value]
    if len(given) != 1:
        raise ValueError(f"expected exactly one of latest=True, best=True and uuid=...; got {given or 'none'}")
    if sort_by is not None and not best:
        raise ValueError(f"sort_by requires best=True, but {given[0]} was given")
