"""Pool of threads in which trials train."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from functools import partial

from typing_extensions import Self

from det_core.errors import TrackingError
from det_core.interfaces.records import State, TrialRecord, stronger_request
from det_core.runner._restart_policy import TrainingOutcome, request_after_error
from det_core.runner._stop_requests import StopRequests
from det_core.runner._trial_runner import TrainingResult

_TICK = 0.2

_MOST = 256
"""Maximum number of trials at once if the launcher sets no limit."""

TrainTrial = Callable[[TrialRecord, Callable[[], State | None]], TrainingResult]
"""Function that trains a trial until it ends or is requested to stop."""


class TrialPool:
    """Pool of training trials, each in a thread of its own.

    If an error ends the context, trials that still train save checkpoints and stop. A kill is still possible.

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
        self._training: dict[Future[TrainingResult], TrialRecord] = {}
        self._stop: State | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._stop = request_after_error(error)
        try:
            while wait(self._training, _TICK).not_done:
                with suppress(TrackingError):  # one has perhaps ended the search; trials stop without it
                    self._requests.poll()
        finally:
            self._stop = State.STOPPING_KILLED
            wait(self._training)

    def __contains__(self, trial: TrialRecord) -> bool:
        return any(one.id == trial.id for one in self._training.values())

    def __len__(self) -> int:
        return len(self._training)

    @property
    def training(self) -> tuple[TrialRecord, ...]:
        """The trials that train, as they were when they were started."""
        return tuple(self._training.values())

    @property
    def full(self) -> bool:
        """Whether no further trial can start now."""
        return len(self._training) >= self._places

    def start(self, trial: TrialRecord) -> None:
        """Start to train a trial in the background. It is POSTPONED if no thread can be started."""
        result: Future[TrainingResult] = Future()
        self._training[result] = trial
        try:
            threading.Thread(target=self._train, args=(trial, result), name=f"det-trial-{trial.id}").start()
        except RuntimeError as error:
            result.set_result(TrainingResult(TrainingOutcome.POSTPONED, error=f"it cannot have a thread: {error}"))

    def wait(self, timeout: float) -> list[tuple[TrialRecord, TrainingResult]]:
        """Wait up to ``timeout`` seconds until a trial ends, and return the ended trials with their results.

        Errors that ``run`` raises are raised here, after the results of trials that ended at the same time.
        """
        if not self._training:
            time.sleep(timeout)
        done, _ = wait(self._training, timeout, FIRST_COMPLETED)
        results = [future for future in done if future.exception() is None]
        ended = [(self._training.pop(future), future.result()) for future in results or done]
        return sorted(ended, key=lambda one: one[0].id)

    def _train(self, trial: TrialRecord, result: Future[TrainingResult]) -> None:
        try:
            result.set_result(self._run(trial, partial(self._requested, trial.id)))
        except BaseException as error:  # noqa: BLE001  (wait raises it)
            result.set_exception(error)

    def _requested(self, trial_id: int) -> State | None:
        asked = stronger_request(self._requests.current, self.asked.get(trial_id))
        return stronger_request(asked, self._stop)
