"""Requests to runners, and reading of logs."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from det_core.errors import TrackingError
from det_core.interfaces.records import LogLine, Run, State, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store
from det_core.tracking._column_types import utc_now
from det_core.tracking.control import log_lines, request_experiment_stop, request_trial_kill


@pytest.fixture
def running(store: TrackingStore, trial: TrialRecord) -> int:
    """Return the id of an experiment with a runner."""
    store.acquire_lease(trial.experiment_id, "host:1:1:1", seconds=60)
    store.set_experiment_state(trial.experiment_id, State.ACTIVE)
    return trial.experiment_id


def test_a_request_never_replaces_a_stronger_one(store: TrackingStore, running: int) -> None:
    """A later pause must not replace a kill."""
    for state, becomes in (
        (State.PAUSED, State.PAUSED),
        (State.STOPPING_CANCELED, State.STOPPING_CANCELED),
        (State.PAUSED, State.STOPPING_CANCELED),
        (State.STOPPING_KILLED, State.STOPPING_KILLED),
        (State.STOPPING_CANCELED, State.STOPPING_KILLED),
    ):
        assert request_experiment_stop(store, running, state).state is becomes


def test_a_request_to_end_a_trial_is_recorded(store: TrackingStore, running: int, trial: TrialRecord) -> None:
    assert store.request_trial_end(trial.id)
    asked = store.trial(trial.id)
    assert (asked.state, asked.end_time) == (State.STOPPING_KILLED, None)
    assert store.experiment(running).state is State.ACTIVE


@pytest.mark.parametrize("state", [State.COMPLETED, State.ERROR, State.CANCELED])
def test_a_request_does_not_change_a_final_state(
    store: TrackingStore, running: int, trial: TrialRecord, state: State
) -> None:
    """A search may complete between the reading and the writing of its state."""
    store.set_trial_state(trial.id, state)
    assert not store.request_trial_end(trial.id)
    ended = store.trial(trial.id)
    assert (ended.state, ended.end_time is not None) == (state, True)
    with pytest.raises(TrackingError, match=f"trial {trial.id} is already {state.value}"):
        request_trial_kill(store, trial.id)
    store.set_experiment_state(running, state)
    assert not store.request_experiment_state(running, State.STOPPING_KILLED)
    assert store.experiment(running).state is state


def test_requests_without_a_runner_are_rejected(store: TrackingStore, running: int, trial: TrialRecord) -> None:
    store.release_lease(running, "host:1:1:1")
    for call in (
        lambda: request_experiment_stop(store, running, State.PAUSED),
        lambda: request_trial_kill(store, trial.id),
    ):
        with pytest.raises(TrackingError, match=f"nothing is running .* det experiment resume {running}"):
            call()
    assert (store.experiment(running).state, store.trial(trial.id).state) == (State.ACTIVE, State.QUEUED)


@pytest.mark.parametrize("asked", [State.STOPPING_CANCELED, State.STOPPING_KILLED])
@pytest.mark.parametrize("late", [False, True], ids=["before-the-pause", "after-the-pause"])
def test_an_end_that_was_requested_at_the_last_moment_is_not_recorded_as_a_pause(
    store: TrackingStore, running: int, asked: State, late: bool
) -> None:
    """A runner that stops for a pause may not have seen a kill, and after that it still waits for its observers."""
    if not late:
        request_experiment_stop(store, running, asked)
    store.set_experiment_state(running, State.PAUSED, lease="host:1:1:1")
    if late:
        request_experiment_stop(store, running, asked)
        store.release_lease(running, "host:1:1:1")
    experiment = store.experiment(running)
    assert (experiment.state, experiment.end_time is not None) == (State.CANCELED, True)


def test_the_lease_and_the_state_are_set_in_one_transaction(store: TrackingStore, trial: TrialRecord) -> None:
    """A request that arrives between the lease and the state ACTIVE would be overwritten."""
    number = trial.experiment_id
    store.set_experiment_state(number, State.ERROR, error="x")
    store.acquire_lease(number, "host:1:1:1", seconds=60, state=State.ACTIVE)
    experiment = store.experiment(number)
    assert (experiment.state, experiment.error, experiment.end_time) == (State.ACTIVE, None, None)
    assert request_experiment_stop(store, number, State.PAUSED).state is State.PAUSED
    store.renew_lease(number, "host:1:1:1", seconds=60)
    assert store.experiment(number).state is State.PAUSED


def line(trial_id: int, text: str) -> LogLine:
    return LogLine(trial_id=trial_id, run_id=1, rank=0, stdtype="stdout", log=text, time=utc_now())


def test_trials_without_new_lines_are_not_queried(store: TrackingStore, run: Run) -> None:
    """A poll must not query the lines of every trial."""
    experiment = store.trial(run.trial_id).experiment_id
    for _ in range(20):
        quiet = store.create_trial(experiment, hparams={}, seed=0)
    store.add_logs([line(run.trial_id, "a"), line(run.trial_id, "b"), line(quiet.id, "c")])
    statements: list[Any] = []
    database = store._database  # type: ignore[attr-defined]
    sa.event.listen(database._readers, "before_cursor_execute", lambda *said: statements.append(said[2]))
    assert [one.log for one in log_lines(store, experiment)] == ["a", "b", "c"]
    of_logs = [statement for statement in statements if "logs" in statement]
    assert len(of_logs) == 3  # one for all, and one for each trial that has new lines
    assert store.latest_logs(experiment)[quiet.id - 1] == 0


def test_a_read_transaction_sees_one_snapshot(store: TrackingStore, running: int) -> None:
    """In PostgreSQL, each statement of a READ COMMITTED transaction would see another state."""
    with open_store(store.url) as other, store._database.read() as connection:  # type: ignore[attr-defined]
        count = sa.text("SELECT count(*) FROM experiments")
        before = connection.execute(count).scalar_one()
        other.create_experiment(config={})
        assert connection.execute(count).scalar_one() == before


def test_the_error_of_an_experiment_may_contain_any_text(store: TrackingStore, running: int) -> None:
    """A NUL in the last line of stderr must not leave the experiment ACTIVE."""
    store.set_experiment_state(running, State.ERROR, error="a\0b \ud800")
    experiment = store.experiment(running)
    assert (experiment.state, experiment.error) == (State.ERROR, "a\N{REPLACEMENT CHARACTER}b ?")
