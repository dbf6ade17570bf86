"""An experiment that runs somewhere: ask it to stop, know when it is over, follow what it prints."""

from __future__ import annotations

import time
from collections.abc import Iterator

from det_core.errors import TrackingError
from det_core.interfaces.tracking import ENDINGS, Experiment, LogLine, State, TrackingStore, Trial

POLL_SECONDS = 0.2
_PAGE = 1000
_RUNNING = (State.ACTIVE, *ENDINGS)
"""States in which an experiment should have a runner."""


def ask(store: TrackingStore, experiment_id: int, state: State) -> Experiment:
    """Ask whoever runs it to pause, cancel or kill it; the experiment, marked so.

    Args:
        state: one of `det_core.interfaces.tracking.REQUESTS`.

    Raises:
        TrackingError: nobody runs it.
    """
    running = store.request_experiment_state(experiment_id, state)
    experiment = store.experiment(experiment_id)
    if not running:
        hint = "" if experiment.state is State.COMPLETED else f"; to continue: det experiment resume {experiment_id}"
        raise TrackingError(f"nothing is running experiment {experiment_id}, which is {experiment.state.value}{hint}")
    return experiment


def ask_to_kill_trial(store: TrackingStore, trial_id: int) -> Trial:
    """Ask whoever runs the trial's experiment to end the trial at once; the others go on.

    Raises:
        TrackingError: nobody runs it.
    """
    running = store.request_trial_end(trial_id)
    trial = store.trial(trial_id)
    if running:
        return trial
    if trial.state.final:
        raise TrackingError(f"trial {trial_id} is {trial.state.value} already")
    raise TrackingError(
        f"nothing is running trial {trial_id}, which is {trial.state.value}; "
        f"to continue its experiment: det experiment resume {trial.experiment_id}"
    )


def settled(store: TrackingStore, experiment_id: int) -> Experiment | None:
    """The experiment if nothing more will happen to it by itself, else None.

    A script off the cluster has no runner, so only its own final state counts.
    """
    holder = store.lease_holder(experiment_id)  # first: a runner gives its lease back after the last state
    experiment = store.experiment(experiment_id)
    idle = holder is None and not experiment.unmanaged
    return experiment if experiment.state.final or idle else None


def lacks_runner(experiment: Experiment, runner: str | None) -> bool:
    """Return whether an experiment should be running, but has no runner.

    Args:
        runner: holder of its lease.
    """
    return runner is None and not experiment.unmanaged and experiment.state in _RUNNING


def log_lines(
    store: TrackingStore, experiment_id: int, trial_id: int | None = None, *, follow: bool = False
) -> Iterator[LogLine]:
    """What one trial of an experiment printed, or all of them; ``follow`` goes on until the experiment is over."""
    seen: dict[int, int] = {}
    over = False
    while not over:
        over = not follow or settled(store, experiment_id) is not None
        for trial, latest in store.latest_logs(experiment_id).items():
            if trial_id in (None, trial) and latest > seen.get(trial, 0):
                yield from _new_lines(store, trial, seen)
        if not over:
            time.sleep(POLL_SECONDS)


def _new_lines(store: TrackingStore, trial_id: int, seen: dict[int, int]) -> Iterator[LogLine]:
    while True:
        page = store.logs(trial_id, after=seen.get(trial_id, 0), limit=_PAGE)
        for line in page:
            seen[trial_id] = line.id
            yield line
        if len(page) < _PAGE:
            return
