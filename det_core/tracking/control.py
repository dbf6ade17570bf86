"""Control of experiments that run in other processes, with requests to stop, their completion and their logs."""

from __future__ import annotations

import time
from collections.abc import Iterator

from det_core.errors import TrackingError
from det_core.interfaces.records import ENDINGS, ExperimentRecord, LogLine, State, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking.log_reading import EVERY_LINE, LogFilter, log_parts

__all__ = ["lacks_runner", "request_experiment_stop", "request_trial_kill"]

POLL_SECONDS = 0.2
"""Number of seconds between two polls of the tracking store."""
_PAGE = 1000
_RUNNING = (State.ACTIVE, *ENDINGS)
"""States in which an experiment should have a runner."""


def request_experiment_stop(store: TrackingStore, experiment_id: int, state: State) -> ExperimentRecord:
    """Request that the runner of an experiment pauses, cancels or kills it.

    Args:
        store: the tracking store.
        experiment_id: id of the experiment.
        state: one of `det_core.interfaces.records.REQUESTS`.

    Returns:
        The experiment with the requested state.

    Raises:
        TrackingError: the experiment is not running.
    """
    running = store.request_experiment_state(experiment_id, state)
    experiment = store.experiment(experiment_id)
    if not running:
        hint = "" if experiment.state is State.COMPLETED else f"; to continue: det experiment resume {experiment_id}"
        raise TrackingError(f"nothing is running experiment {experiment_id}, which is {experiment.state.value}{hint}")
    return experiment


def request_trial_kill(store: TrackingStore, trial_id: int) -> TrialRecord:
    """Request that the runner of a trial's experiment ends the trial at once. Other trials continue.

    Args:
        store: the tracking store.
        trial_id: id of the trial.

    Returns:
        The trial with the requested state.

    Raises:
        TrackingError: the trial is not running.
    """
    running = store.request_trial_end(trial_id)
    trial = store.trial(trial_id)
    if running:
        return trial
    if trial.state.final:
        raise TrackingError(f"trial {trial_id} is already {trial.state.value}")
    raise TrackingError(
        f"nothing is running trial {trial_id}, which is {trial.state.value}; "
        f"to continue its experiment: det experiment resume {trial.experiment_id}"
    )


def settled_experiment(store: TrackingStore, experiment_id: int) -> ExperimentRecord | None:
    """Return the experiment if it has ended or has no runner, which may be a script, else None."""
    holder = store.lease_holder(experiment_id)  # first, because a runner sets the last state before it ends its lease
    experiment = store.experiment(experiment_id)
    return experiment if experiment.state.final or living_runner(holder) is None else None


def living_runner(holder: str | None) -> str | None:
    """Return the holder of a lease, or None if there is none.

    A runner that died on this host counts as none at once, although its lease has not expired.
    """
    if holder is None:
        return None
    from det_core.tracking._lease import is_dead  # lists of experiments that have ended do not need it

    return None if is_dead(holder) else holder


def lacks_runner(experiment: ExperimentRecord, runner: str | None) -> bool:
    """Return whether an experiment should be running, but has no runner.

    Args:
        experiment: the experiment.
        runner: holder of the experiment's lease, or None.
    """
    return living_runner(runner) is None and experiment.state in _RUNNING


def log_lines(
    store: TrackingStore,
    experiment_id: int,
    trial_id: int | None = None,
    *,
    follow: bool = False,
    chosen: LogFilter = EVERY_LINE,
) -> Iterator[LogLine]:
    """Yield the log lines of an experiment.

    Args:
        store: the tracking store.
        experiment_id: id of the experiment.
        trial_id: the trial whose lines are wanted, or None for all trials.
        follow: whether to wait for further lines until the experiment is over.
        chosen: selection of the lines.
    """
    seen: dict[int, int] = {}
    over = False
    while not over:
        over = not follow or settled_experiment(store, experiment_id) is not None
        for trial, latest in store.latest_logs(experiment_id).items():
            if trial_id in (None, trial) and latest > seen.get(trial, 0):
                yield from _new_lines(store, trial, latest, seen, chosen)
        if not over:
            time.sleep(POLL_SECONDS)


def _new_lines(
    store: TrackingStore, trial_id: int, latest: int, seen: dict[int, int], chosen: LogFilter
) -> Iterator[LogLine]:
    for part in log_parts(store, trial_id, chosen, after=seen.get(trial_id, 0), before=latest + 1, at_once=_PAGE):
        seen[trial_id] = part.edge
        yield from part.lines
