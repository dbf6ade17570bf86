"""SDK class for experiments, which can be awaited, stopped and searched for checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from det_core.errors import DetError
from det_core.experimental._checkpoint import Checkpoint
from det_core.experimental._checkpoint_ranking import rank_checkpoints
from det_core.experimental._frames import make_metrics_frame, make_trials_frame
from det_core.experimental._shared_store import StoredObject, best_value, open_shared_store
from det_core.experimental._trial import TrialReference
from det_core.interfaces.records import CodeVersion, ExperimentRecord, State
from det_core.tracking.control import living_runner, log_lines, request_experiment_stop, settled_experiment

if TYPE_CHECKING:
    from pandas import DataFrame


class ExperimentReference(StoredObject):
    """An experiment in the tracking store. Returned by `Determined.get_experiment`, `create` and similar functions.

    Example:
        >>> experiment = Determined().get_experiment(1)
        >>> experiment.state.value, experiment.progress
        ('COMPLETED', 1.0)

    Args:
        experiment_id: id of the experiment.
        master: URL of its tracking store. An empty string stands for the embedded store.

    Attributes:
        id: id of the experiment.
    """

    def __init__(self, experiment_id: int, master: str) -> None:
        self.id = experiment_id
        self._master = open_shared_store(master).url

    @property
    def config(self) -> dict[str, Any]:
        """Complete config with references instead of secrets."""
        return dict(self._record.config)

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self._record.name

    @property
    def state(self) -> State:
        """Present state."""
        return self._record.state

    @property
    def code_version(self) -> CodeVersion | None:
        """Commit of the git repository that the code comes from, or None if it is unknown."""
        return self._store.code_versions([self.id]).get(self.id)

    @property
    def runner(self) -> str | None:
        """Runner of the experiment, or None. Unless the experiment has ended, `activate` starts a runner."""
        return living_runner(self._store.lease_holder(self.id))

    @property
    def progress(self) -> float:
        """Share of the work that is done, 0 to 1."""
        return self._record.progress

    def top_checkpoint(self, sort_by: str | None = None, smaller_is_better: bool | None = None) -> Checkpoint:
        """Return the checkpoint with the best validation.

        Example:
            >>> experiment = Determined().get_experiment(1)
            >>> experiment.top_checkpoint().uuid
            'best-one'
            >>> experiment.top_checkpoint(sort_by="accuracy", smaller_is_better=True).uuid
            'last-one'

        Args:
            sort_by: validation metric that decides. By default the searcher's metric.
            smaller_is_better: whether smaller values are better. By default as in the config's searcher. Ignored
                without ``sort_by``.

        Raises:
            NoCheckpoint: no checkpoint was validated with a finite value of that metric. NaN is never the best.
        """
        return self.top_n_checkpoints(1, sort_by=sort_by, smaller_is_better=smaller_is_better)[0]

    def top_n_checkpoints(
        self, limit: int, sort_by: str | None = None, smaller_is_better: bool | None = None
    ) -> list[Checkpoint]:
        """Return the best checkpoint of each of the best trials, best first.

        Args:
            limit: maximum number of trials, >= 1.
            sort_by: as in `top_checkpoint`.
            smaller_is_better: as in `top_checkpoint`.

        Returns:
            At most ``limit`` checkpoints of distinct trials. Trials without a finite value are left out.

        Raises:
            NoCheckpoint: as in `top_checkpoint`.
            ValueError: ``limit`` is less than 1.
        """
        if limit < 1:
            raise ValueError(f"limit is {limit!r}; expected the maximum number of checkpoints, at least 1")
        best_first = rank_checkpoints(self._store, self._record, sort_by, smaller_is_better)
        by_trial = {one.trial_id: one for one in reversed(best_first)}
        distinct = [one for one in best_first if by_trial[one.trial_id] is one]
        return Checkpoint._of(self._store, distinct[:limit])

    def list_checkpoints(self) -> list[Checkpoint]:
        """Return all completed checkpoints, oldest first."""
        return Checkpoint._of(self._store, self._store.checkpoints(experiment_id=self.id))

    def list_trials(
        self, where: str = "", *, sort_by: str = "", reverse: bool = False, limit: int | None = None
    ) -> list[TrialReference]:
        """Return trials in the order of their creation.

        Example:
            >>> experiment = Determined().get_experiment(1)
            >>> [trial.id for trial in experiment.list_trials("lr < 0.2 and not state = ERROR", sort_by="accuracy")]
            [1]

        Args:
            where: include only trials for which this filter holds.
            sort_by: name of a value, as in filters, by which to sort instead, the least first.
            reverse: reverse the sort order.
            limit: maximum number of trials.

        Raises:
            FilterError: the filter is malformed. The message names the position.
        """
        found = self._store.trial_results(self.id, where=where, sort_by=sort_by, reverse=reverse, limit=limit)
        return [TrialReference(one.trial.id, self._master) for one in found]

    get_trials = list_trials

    def trials_frame(self) -> DataFrame:
        """Return the trials as a pandas data frame, indexed by trial id.

        Its columns are the state, a column like ``hparams.lr`` per hyperparameter, the ``best`` and ``latest`` value
        of the searcher's metric, ``best_at``, the number of batches at the best value, and further fields of trials.

        Example:
            >>> frame = Determined().get_experiment(1).trials_frame()
            >>> frame.loc[1, ["hparams.lr", "best"]].tolist()
            [0.1, 0.75]

        Raises:
            DetError: pandas is not installed.
        """
        return make_trials_frame(self._store, self.id)

    def metrics_frame(self, group: str | None = None) -> DataFrame:
        """Return the reports of all trials as a pandas data frame, as in `TrialReference.metrics_frame`."""
        return make_metrics_frame(self._store, [trial.id for trial in self._store.trials(self.id)], group)

    def await_first_trial(self, interval: float = 0.1, timeout: float = 60.0) -> TrialReference:
        """Wait until the experiment has a trial, and return it.

        Args:
            interval: polling interval in seconds.
            timeout: maximum time to wait in seconds.

        Raises:
            TimeoutError: there is no trial after ``timeout`` seconds.
            DetError: the experiment ended without a trial.
        """
        deadline = time.monotonic() + timeout
        while not (trials := self.list_trials()):
            if settled_experiment(self._store, self.id):
                raise DetError(f"experiment {self.id} is {self.state.value} without a trial: {self._record.error}")
            _wait(interval, deadline, f"experiment {self.id} has no trial")
        return trials[0]

    def wait(self, interval: float = 1.0, timeout: float | None = None) -> State:
        """Wait until the experiment has ended, is paused, or has no runner.

        Example:
            >>> Determined().get_experiment(1).wait() is State.COMPLETED
            True

        Args:
            interval: polling interval in seconds.
            timeout: maximum time to wait in seconds, or None to wait forever.

        Returns:
            The state of the experiment.

        Raises:
            TimeoutError: the experiment is still running after ``timeout`` seconds.
        """
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while (experiment := settled_experiment(self._store, self.id)) is None:
            _wait(interval, deadline, f"experiment {self.id} is still running")
        return experiment.state

    def watch(self, timeout: float | None = None) -> State:
        """Show the progress until the experiment has ended, is paused, or has no runner, with curves in a notebook.

        Args:
            timeout: maximum time to wait in seconds, or None to wait forever.

        Returns:
            The state of the experiment.

        Raises:
            TimeoutError: the experiment is still running after ``timeout`` seconds.
        """
        from det_core.experimental._progress_display import display_progress

        with display_progress(self.id, self._master):
            return self.wait(timeout=timeout)

    def activate(self, *, from_beginning: bool = False) -> None:
        """Continue the experiment from its latest checkpoints in the background.

        Args:
            from_beginning: whether trials that have lost all their checkpoints start over instead of staying as they
                are.

        Raises:
            DetError: the experiment is complete, or is already running.
        """
        from det_core.runner import resume_in_background

        if self.state is State.COMPLETED:
            raise DetError(f"experiment {self.id} is COMPLETED; nothing is left to do")
        resume_in_background(self._store, self.id, from_beginning=from_beginning)

    def pause(self) -> None:
        """Ask the runner to save checkpoints and stop, without waiting for it. `activate` continues the experiment.

        Raises:
            TrackingError: the experiment has no runner.
        """
        request_experiment_stop(self._store, self.id, State.PAUSED)

    def cancel(self) -> None:
        """Ask the runner to save checkpoints and end the experiment, without waiting for it.

        Raises:
            TrackingError: the experiment has no runner.
        """
        request_experiment_stop(self._store, self.id, State.STOPPING_CANCELED)

    def kill(self) -> None:
        """Ask the runner to end the experiment at once, without waiting for it.

        Raises:
            TrackingError: the experiment has no runner.
        """
        request_experiment_stop(self._store, self.id, State.STOPPING_KILLED)

    def archive(self) -> None:
        """Hide the experiment from listings."""
        self._store.edit_experiment(self.id, archived=True)

    def unarchive(self) -> None:
        """Show the experiment in listings again."""
        self._store.edit_experiment(self.id, archived=False)

    def logs(self, follow: bool = False) -> Iterator[str]:
        """Yield the lines that the trials printed, each with its newline.

        Args:
            follow: continue until the experiment is over.
        """
        for line in log_lines(self._store, self.id, follow=follow):
            yield f"{line.log}\n"

    def _identity(self) -> dict[str, Any]:
        return {"id": self.id}

    def _facts(self) -> dict[str, Any]:
        experiment = self._record
        return {
            **({"name": experiment.name} if experiment.name else {}),
            "state": experiment.state,
            "progress": experiment.progress,
            **best_value(self._store, experiment),
            **({"error": experiment.error} if experiment.error else {}),
        }

    @property
    def _record(self) -> ExperimentRecord:
        return self._store.experiment(self.id)


def _wait(interval: float, deadline: float, what: str) -> None:
    if time.monotonic() >= deadline:
        raise TimeoutError(f"{what} after the timeout; pass a longer one")
    time.sleep(interval)
