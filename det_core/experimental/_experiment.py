"""Experiments as objects: wait for them, stop them, find their checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from det_core.errors import DetError
from det_core.experimental._checkpoint import Checkpoint
from det_core.experimental._ranking import ranked
from det_core.experimental._record import Recorded, open_record
from det_core.experimental._trial import TrialReference
from det_core.interfaces.tracking import Experiment, State
from det_core.tracking.control import ask, log_lines, settled


class ExperimentReference(Recorded):
    """An experiment in the record. Made by `Determined.get_experiment`, `create` and their like.

    Example:
        >>> experiment = Determined().get_experiment(1)
        >>> experiment.state.value, experiment.progress
        ('COMPLETED', 1.0)

    Args:
        experiment_id: its id.
        master: the URL of the record that it is in; empty = the embedded one.

    Attributes:
        id: its id.
    """

    def __init__(self, experiment_id: int, master: str) -> None:
        self.id = experiment_id
        self._master = open_record(master).url

    def __repr__(self) -> str:
        return f"ExperimentReference(id={self.id})"

    @property
    def config(self) -> dict[str, Any]:
        """The complete config; references stand for secrets."""
        return dict(self._record.config)

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def state(self) -> State:
        """As it is now."""
        return self._record.state

    @property
    def runner(self) -> str | None:
        """The runner of the experiment, or None. Unless the experiment has ended, `activate` starts a runner."""
        return self._store.lease_holder(self.id)

    @property
    def progress(self) -> float:
        """Share of the work that is done, 0 to 1."""
        return self._record.progress

    def top_checkpoint(self, sort_by: str | None = None, smaller_is_better: bool | None = None) -> Checkpoint:
        """The checkpoint with the best validation.

        Example:
            >>> experiment = Determined().get_experiment(1)
            >>> experiment.top_checkpoint().uuid
            'best-one'
            >>> experiment.top_checkpoint(sort_by="accuracy", smaller_is_better=True).uuid
            'last-one'

        Args:
            sort_by: the validation metric that decides; by default the one of the config's searcher.
            smaller_is_better: whether the smallest value of it is the best; by default as the config's searcher says.
                Without ``sort_by`` it is ignored.

        Raises:
            NoCheckpoint: none was validated with a finite value of that metric. NaN never wins.
        """
        return self.top_n_checkpoints(1, sort_by=sort_by, smaller_is_better=smaller_is_better)[0]

    def top_n_checkpoints(
        self, limit: int, sort_by: str | None = None, smaller_is_better: bool | None = None
    ) -> list[Checkpoint]:
        """The best checkpoint of each of the best trials, best first.

        Args:
            limit: how many trials, >= 1.
            sort_by: as for `top_checkpoint`, and so is ``smaller_is_better``.

        Returns:
            At most ``limit``, of one trial each; those without a finite value are left out.

        Raises:
            NoCheckpoint: as `top_checkpoint`.
            ValueError: ``limit`` is less than 1.
        """
        if limit < 1:
            raise ValueError(f"limit is {limit!r}; expected how many checkpoints, at least 1")
        best_first = ranked(self._store, self._record, sort_by, smaller_is_better)
        by_trial = {one.trial_id: one for one in reversed(best_first)}
        distinct = [one for one in best_first if by_trial[one.trial_id] is one]
        return Checkpoint._of(self._store, distinct[:limit])

    def list_checkpoints(self) -> list[Checkpoint]:
        """All that are complete, oldest first."""
        return Checkpoint._of(self._store, self._store.checkpoints(experiment_id=self.id))

    def list_trials(self) -> list[TrialReference]:
        """In order of creation."""
        return [TrialReference(trial.id, self._master) for trial in self._store.trials(self.id)]

    get_trials = list_trials

    def await_first_trial(self, interval: float = 0.1, timeout: float = 60.0) -> TrialReference:
        """Wait until it has a trial.

        Raises:
            TimeoutError: it has none after ``timeout`` seconds.
            DetError: it ended without one.
        """
        deadline = time.monotonic() + timeout
        while not (trials := self.list_trials()):
            if settled(self._store, self.id):
                raise DetError(f"experiment {self.id} is {self.state.value} without a trial: {self._record.error}")
            _wait(interval, deadline, f"experiment {self.id} has no trial")
        return trials[0]

    def wait(self, interval: float = 1.0, timeout: float | None = None) -> State:
        """Wait until nothing more happens to it by itself: it ended, was paused, or nobody runs it.

        Example:
            >>> Determined().get_experiment(1).wait() is State.COMPLETED
            True

        Args:
            interval: seconds between two looks.
            timeout: seconds until it is given up; None = never.

        Returns:
            Its state.

        Raises:
            TimeoutError: it goes on after ``timeout``.
        """
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while (experiment := settled(self._store, self.id)) is None:
            _wait(interval, deadline, f"experiment {self.id} goes on")
        return experiment.state

    def activate(self, *, from_beginning: bool = False) -> None:
        """Go on from the latest checkpoints, in the background.

        Args:
            from_beginning: whether trials that have lost all their checkpoints start from the beginning, or wait.

        Raises:
            DetError: it is complete, or runs already.
        """
        from det_core.runner import ExperimentRunner, start_detached

        if self.state is State.COMPLETED:
            raise DetError(f"experiment {self.id} is COMPLETED; nothing is left to do")
        ExperimentRunner(self._store, self.id)  # refuses what no runner can take
        start_detached(self._store, self.id, from_beginning=from_beginning)

    def pause(self) -> None:
        """Ask it to checkpoint and stop; `activate` goes on. As `cancel` and `kill`, it does not wait for that.

        Raises:
            TrackingError: nobody runs it.
        """
        ask(self._store, self.id, State.PAUSED)

    def cancel(self) -> None:
        """Ask it to checkpoint and end."""
        ask(self._store, self.id, State.STOPPING_CANCELED)

    def kill(self) -> None:
        """Ask it to end at once."""
        ask(self._store, self.id, State.STOPPING_KILLED)

    def archive(self) -> None:
        """Leave it out of listings."""
        self._store.edit_experiment(self.id, archived=True)

    def unarchive(self) -> None:
        """Take it back into listings."""
        self._store.edit_experiment(self.id, archived=False)

    def logs(self, follow: bool = False) -> Iterator[str]:
        """What its trials printed, a line at a time, each with its newline.

        Args:
            follow: go on until the experiment is over.
        """
        for line in log_lines(self._store, self.id, follow=follow):
            yield f"{line.log}\n"

    @property
    def _record(self) -> Experiment:
        return self._store.experiment(self.id)


def _wait(interval: float, deadline: float, what: str) -> None:
    if time.monotonic() >= deadline:
        raise TimeoutError(f"{what} after the timeout; pass a longer one")
    time.sleep(interval)
