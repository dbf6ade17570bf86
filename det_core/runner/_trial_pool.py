"""Pool of threads in which trials train."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial

from typing_extensions import Self

from det_core.interfaces.records import State, TrialRecord, stronger_request
from det_core.runner._stop_requests import StopRequests
from det_core.runner._trial_runner import TrainingResult

_MOST = 256
"""Maximum number of trials at once if the launcher sets no limit."""

TrainTrial = Callable[[TrialRecord, Callable[[], State | None]], TrainingResult]
"""Function that trains a trial until it ends or is requested to stop."""


class TrialPool:
    """Pool of training trials, each in a thread of its own. At the end of the context, it kills those that still train.

    Args:
        run: function that trains one trial.
        requests: requests to pause or end the experiment.
        places: maximum number of trials at once, or None if the launcher queues them.
    """

    def __init__(self, run: TrainTrial, requests: StopRequests, places: int | None) -> None:
        self.asked: dict[int, State] = {}
        """Requests to end single trials, by trial id."""
        self._run = run
        self._requests = requests
        self._places = places or _MOST
        self._pool = ThreadPoolExecutor(self._places, thread_name_prefix="det-trial")
        self._training: dict[Future[TrainingResult], TrialRecord] = {}
        self._killed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._killed = True
        self._pool.shutdown()

    def __contains__(self, trial: TrialRecord) -> bool:
        return any(one.id == trial.id for one in self._training.values())

    def __len__(self) -> int:
        return len(self._training)

    @property
    def full(self) -> bool:
        """Whether no further trial can start now."""
        return len(self._training) >= self._places

    def start(self, trial: TrialRecord) -> None:
        """Start to train a trial in the background."""
        self._training[self._pool.submit(self._run, trial, partial(self._requested, trial.id))] = trial

    def wait(self, timeout: float) -> list[tuple[TrialRecord, TrainingResult]]:
        """Wait up to ``timeout`` seconds until a trial ends, and return the ended trials with their results.

        Errors that ``run`` raises are raised here.
        """
        done, _ = wait(self._training, timeout, FIRST_COMPLETED)
        ended = [(self._training.pop(future), future.result()) for future in done]
        return sorted(ended, key=lambda one: one[0].id)

    def _requested(self, trial_id: int) -> State | None:
        if self._killed:
            return State.STOPPING_KILLED
        return stronger_request(self._requests.current, self.asked.get(trial_id))
