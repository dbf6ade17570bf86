"""Trials and their runs in the tracking store."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest

from det_core.errors import CallTooLarge, RecordNotFound, StaleRun
from det_core.interfaces.records import (
    MAX_GPUS,
    MAX_MACHINES,
    CheckpointState,
    LogLine,
    Machine,
    MetricsReport,
    NewTrial,
    Run,
    SearchEvent,
    State,
    TrialRecord,
    TrialUpdate,
)
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import _search_events, open_store

CANCELED = TrialUpdate(request_id=0, state=State.CANCELED)
OF_TRIAL, OF_EXPERIMENT = attrgetter("id"), attrgetter("experiment_id")


def test_a_trial_comes_back_as_it_was_created(store: TrackingStore, trial: TrialRecord) -> None:
    assert store.trial(trial.id) == trial
    assert (trial.state, trial.hparams, trial.seed, trial.run_id) == (State.QUEUED, {"lr": 0.1}, 7, 0)
    assert trial.task_id.startswith(f"{trial.experiment_id}.")
    second = store.create_trial(trial.experiment_id, hparams={}, seed=2**32 - 1, request_id=5)
    assert store.trials(trial.experiment_id) == [trial, second]
    assert (second.request_id, second.seed) == (5, 2**32 - 1)


def test_an_external_id_belongs_to_its_experiment(store: TrackingStore, trial: TrialRecord) -> None:
    first = store.create_trial(trial.experiment_id, hparams={}, seed=0, external_id="x")
    assert store.create_trial(trial.experiment_id, hparams={"a": 1}, seed=1, external_id="x") == first
    other = store.create_experiment(config={}).id
    assert store.create_trial(other, hparams={}, seed=0, external_id="x").id != first.id


def test_states_set_the_end_time_and_restarts_are_counted(store: TrackingStore, trial: TrialRecord) -> None:
    store.set_trial_state(trial.id, State.COMPLETED)
    assert store.trial(trial.id).end_time is not None
    store.set_trial_state(trial.id, State.ACTIVE)
    assert store.trial(trial.id).end_time is None
    assert [store.count_restart(trial.id) for _ in range(3)] == [1, 2, 3]
    assert store.trial(trial.id).restarts == 3


@pytest.mark.parametrize(
    ("state", "length", "progress"),
    [(State.ERROR, 10, 0.5), (State.ACTIVE, 20, 0.25), (State.CANCELED, 5, 1), (State.COMPLETED, 20, 0.5)],
)
def test_a_search_that_starts_over_keeps_what_was_trained(
    store: TrackingStore, trial: TrialRecord, run: Run, state: State, length: int, progress: float
) -> None:
    """It gives trials new restarts and interruptions. One that has completed has trained its whole length."""
    store.record_search(trial.experiment_id, [], [TrialUpdate(request_id=0, state=State.QUEUED, length=10)])
    store.set_trial_progress(trial.id, 1, 0.5)
    assert (store.count_restart(trial.id), store.count_interruption(trial.id)) == (1, 1)
    store.record_search(trial.experiment_id, [], [TrialUpdate(request_id=0, state=state)])
    store.forget_search(trial.experiment_id)
    same = NewTrial(hparams=trial.hparams, seed=trial.seed, source_checkpoint=None)
    again = TrialUpdate(request_id=0, state=State.QUEUED, new=same, ordered=0, length=length)
    (found,) = store.record_search(trial.experiment_id, [], [again])
    assert (found.id, found.restarts, found.interruptions, found.progress) == (trial.id, 0, 0, progress)


def test_a_run_that_goes_on_has_no_end(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    """Only the newest one goes on, and only with the holder of the lease."""
    store.acquire_lease(trial.experiment_id, "old", seconds=0.0)
    store.acquire_lease(trial.experiment_id, "new", seconds=60.0)
    assert store.run(trial.id, run.run_id).end_reason
    with pytest.raises(StaleRun):
        store.continue_run(trial.id, run.run_id, lease="old")
    before = store.continue_run(trial.id, run.run_id, lease="new")
    assert store.run(trial.id, run.run_id) == run
    assert store.continue_run(trial.id, run.run_id, lease="new") >= before > 0
    store.start_run(trial.id, allocation_id="a2", lease="new")
    with pytest.raises(StaleRun):
        store.continue_run(trial.id, run.run_id, lease="new")


@pytest.mark.parametrize("reason", ["", "it failed"])
def test_a_run_that_has_ended_never_goes_on(store: TrackingStore, trial: TrialRecord, run: Run, reason: str) -> None:
    store.acquire_lease(trial.experiment_id, "runner", seconds=60.0)
    store.end_run(trial.id, run.run_id, reason=reason, exit_code=1, lease="runner")
    ended = store.run(trial.id, run.run_id)
    with pytest.raises(StaleRun, match="has ended"):
        store.continue_run(trial.id, run.run_id, lease="runner")
    assert store.run(trial.id, run.run_id) == ended


def test_only_the_holder_of_a_lease_continues_a_run(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    for holder in (None, "runner"):
        if holder:
            store.acquire_lease(trial.experiment_id, holder, seconds=60.0)
        for lease in ("", "other"):
            with pytest.raises(StaleRun):
                store.continue_run(trial.id, run.run_id, lease=lease)


@pytest.mark.parametrize("state", [State.QUEUED, State.ACTIVE, State.PAUSED])
def test_a_request_to_end_stays_until_a_final_state(store: TrackingStore, trial: TrialRecord, state: State) -> None:
    """The next start must not overwrite a kill."""
    store.set_trial_state(trial.id, State.STOPPING_KILLED)
    store.set_trial_state(trial.id, state)
    (updated,) = store.record_search(trial.experiment_id, [], [TrialUpdate(request_id=0, state=state, ordered=3)])
    assert (updated.state, updated.ordered) == (State.STOPPING_KILLED, 3)
    store.record_search(trial.experiment_id, [], [CANCELED])
    assert store.trial(trial.id).state is State.CANCELED


def test_a_run_has_its_slots_before_its_end(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    """A launch that is tried on fewer slots replaces the number. An end without a number keeps it."""
    for slots in (4, 2, None):
        store.set_trial_placement(trial.id, 1, "queued", slots=slots)
        assert store.run(trial.id, 1).slots == (slots or 2)
    store.end_run(trial.id, 1, reason="its runner ended first")
    assert store.run(trial.id, 1).slots == 2
    store.end_run(trial.id, 1, slots=0)
    assert store.run(trial.id, 1).slots == 0


def test_a_search_changes_many_trials_in_several_transactions(
    store: TrackingStore, trial: TrialRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others write in between, and a runner that was killed there records the same trials again."""
    monkeypatch.setattr(_search_events, "MAX_ROWS", 2)
    transactions, lock = [], _search_events.lock_experiment
    monkeypatch.setattr(_search_events, "lock_experiment", lambda *given: transactions.append(lock(*given)))
    new = NewTrial(hparams={}, seed=1, source_checkpoint=None)
    updates = [TrialUpdate(request_id=key, state=State.QUEUED, new=new) for key in range(1, 6)]
    before = store.record_search(trial.experiment_id, [], updates[:2])
    found = store.record_search(trial.experiment_id, [SearchEvent(number=0, event=["start"], actions=[])], updates)
    assert found[:2] == before
    assert [one.request_id for one in found] == [1, 2, 3, 4, 5]
    assert store.trials(trial.experiment_id) == [trial, *found]
    assert len(store.search_events(trial.experiment_id)) == 1
    assert len(transactions) == 1 + 3


@pytest.mark.integration
def test_a_call_has_a_maximum_number_of_events(store: TrackingStore, trial: TrialRecord) -> None:
    """Others wait to write in the meantime."""
    events = [SearchEvent(number=number, event=["start"], actions=[]) for number in range(10_001)]
    with pytest.raises(CallTooLarge, match="10001 events; expected at most 10000"):
        store.record_search(trial.experiment_id, events, [])
    assert store.search_events(trial.experiment_id) == []


def test_a_run_records_how_it_ended(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    assert store.run(trial.id, 1) == run
    assert run == Run(trial_id=trial.id, run_id=1, allocation_id="first", start_time=run.start_time, start_step=0)
    store.acknowledge_preemption(trial.id, 1)
    store.report_early_exit(trial.id, 1, "EXITED_REASON_INVALID_HP")
    store.set_runner_state(trial.id, 1, "training")
    store.set_trial_placement(trial.id, 1, "node-1: 0, 1")
    store.set_trial_total(trial.id, 1, 100)
    store.set_trial_progress(trial.id, 1, 0.5)
    left = store.run(trial.id, 1)
    assert (left.preemption_acknowledged, left.early_exit) == (True, "EXITED_REASON_INVALID_HP")
    found = store.trial(trial.id)
    assert (found.runner_state, found.placement, found.total_batches) == ("training", "node-1: 0, 1", 100)
    assert found.progress == 0.5


def machine(host: str, **values: Any) -> Machine:
    gpus = [{"name": "H100", "memory": 80 << 30, "driver": "570.1"}]
    return Machine(host=host, gpus=gpus, packages={"torch": "2.11.0", "a": "1"}, **values)


def test_a_run_records_its_machines(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    first = machine("n1", system="Debian 12", kernel="Linux 6", python="3.11.4", cpus=8, cpu_model="A", memory=1 << 35)
    second = machine("n2", node=1)
    for one in (second, machine("old"), first):
        store.record_machine(trial.id, 1, one)
    assert store.machines(trial.id) == {1: [first, second]}
    store.start_run(trial.id, allocation_id="a2")
    third = machine("n3\0")
    store.record_machine(trial.id, 2, third)
    assert [(run_id, [one.host for one in found]) for run_id, found in store.machines(trial.id, limit=2).items()] == [
        (2, ["n3\N{REPLACEMENT CHARACTER}"]),
        (1, ["n1"]),
    ]
    (brief,) = store.machines(trial.id, limit=1, brief=True)[2]
    assert (brief.gpus, brief.packages) == (third.gpus, {})
    other = store.create_trial(trial.experiment_id, hparams={}, seed=0)
    newest = store.newest_machines([trial.id, other.id, 99])
    assert {trial_id: (one.host, one.packages) for trial_id, one in newest.items()} == {
        trial.id: ("n3\N{REPLACEMENT CHARACTER}", third.packages)
    }
    assert store.machines(other.id) == {}
    store.delete_experiment(trial.experiment_id)


def test_machines_are_bounded_and_belong_to_the_newest_run(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    with pytest.raises(ValueError, match=f"has the index {MAX_MACHINES}; expected 0 to {MAX_MACHINES - 1}"):
        store.record_machine(trial.id, 1, machine("a", node=MAX_MACHINES))
    with pytest.raises(CallTooLarge, match="65548 characters; expected at most 65536"):
        store.record_machine(trial.id, 1, Machine(host="a", packages={"torch": "1" * (64 << 10)}))
    (gpu,) = machine("a").gpus
    odd: list[Any] = [1, {"name": "a"}, {**gpu, "memory": "big"}, {**gpu, "memory": 10**400}, {**gpu, "name": 1}]
    for gpus in (*([one] for one in odd), [gpu] * (MAX_GPUS + 1)):
        with pytest.raises((ValueError, CallTooLarge)):
            store.record_machine(trial.id, 1, Machine(host="a", gpus=gpus))
    store.start_run(trial.id, allocation_id="a2")
    with pytest.raises(StaleRun):
        store.record_machine(trial.id, 1, machine("a"))
    assert store.machines(trial.id) == {}


def test_a_run_records_its_end_its_slots_and_its_nodes(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    for placement in ("starting on n1", "running on n1, n2 (job 7)", ""):
        store.set_trial_placement(trial.id, 1, placement)
    store.end_run(trial.id, 1, reason="node lost: n2", exit_code=-9, cause="node lost", slots=4)
    found = store.run(trial.id, 1)
    assert (found.end_reason, found.exit_code, found.cause, found.slots) == ("node lost: n2", -9, "node lost", 4)
    assert found.placement == "running on n1, n2 (job 7)"


def test_a_run_records_from_which_batch_it_starts(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    store.begin_checkpoint("a", trial_id=trial.id, run_id=1, storage={})
    store.complete_checkpoint("a", run_id=1, steps_completed=30, resources={}, metadata={})
    store.report_metrics(
        [MetricsReport(trial_id=trial.id, run_id=1, group="training", steps_completed=50, metrics={"loss": 1.0})]
    )
    store.start_run(trial.id, allocation_id="second")
    assert [one.start_step for one in store.runs(trial.id)] == [0, 30]


@pytest.mark.parametrize(
    ("method", "subject", "arguments", "reason"),
    [
        ("end_run", OF_TRIAL, {"run_id": 1, "reason": "why"}, "why"),
        ("set_trial_state", OF_TRIAL, {"state": State.COMPLETED}, ""),
        ("set_trial_state", OF_TRIAL, {"state": State.ERROR}, "its trial ended as ERROR"),
        ("start_run", OF_TRIAL, {"allocation_id": "second"}, "its runner ended first"),
        ("record_search", OF_EXPERIMENT, {"events": [], "trials": [CANCELED]}, "its runner ended first"),
        ("forget_search", OF_EXPERIMENT, {}, "its runner ended first"),
    ],
)
def test_each_end_of_a_run_has_a_reason_and_clears_the_placement(
    store: TrackingStore,
    trial: TrialRecord,
    run: Run,
    method: str,
    subject: Callable[[TrialRecord], int],
    arguments: Any,
    reason: str,
) -> None:
    """Also if its runner was killed, and the next runner does not start the trial again."""
    store.set_trial_placement(trial.id, 1, "running on n1")
    getattr(store, method)(subject(trial), **arguments)
    found = store.run(trial.id, 1)
    assert found.end_time is not None
    assert (found.end_reason, store.trial(trial.id).placement) == (reason, "")


def test_metadata_is_replaced_as_a_whole(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    assert store.trial(trial.id).metadata == {}
    store.set_trial_metadata(trial.id, 1, {"data": {"rows": [1, 2]}, "note": "é"})
    store.set_trial_metadata(trial.id, 1, {"note": None})
    assert store.trial(trial.id).metadata == {"note": None}
    with pytest.raises(TypeError, match="'x' is a builtins.set"):
        store.set_trial_metadata(trial.id, 1, {"x": {1}})


def test_writes_of_a_replaced_run_are_refused(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    store.begin_checkpoint("c", trial_id=trial.id, run_id=1, storage={})
    with open_store(store.url) as other:
        assert other.start_run(trial.id, allocation_id="second").run_id == 2
    old = MetricsReport(trial_id=trial.id, run_id=1, group="training", steps_completed=1, metrics={"loss": 1.0})
    new = MetricsReport(trial_id=trial.id, run_id=2, group="training", steps_completed=1, metrics={"loss": 1.0})
    done = {"steps_completed": 1, "resources": {}, "metadata": {}}
    writes = (
        lambda: store.report_metrics([old]),
        lambda: store.report_metrics([new, old]),
        lambda: store.acknowledge_preemption(trial.id, 1),
        lambda: store.report_early_exit(trial.id, 1, "x"),
        lambda: store.set_runner_state(trial.id, 1, "x"),
        lambda: store.set_trial_metadata(trial.id, 1, {}),
        lambda: store.set_trial_placement(trial.id, 1, "x"),
        lambda: store.set_trial_total(trial.id, 1, 1),
        lambda: store.set_trial_progress(trial.id, 1, 1.0),
        lambda: store.begin_checkpoint("d", trial_id=trial.id, run_id=1, storage={}),
        lambda: store.complete_checkpoint("c", run_id=1, **done),
        lambda: store.complete_checkpoint("c", run_id=2, **done),
    )
    for write in writes:
        with pytest.raises(StaleRun, match="run 1"):
            write()
    assert list(store.metrics(trial.id)) == []
    assert [found.uuid for found in store.checkpoints(states=list(CheckpointState))] == ["c"]


def test_logs_of_a_replaced_run_are_kept(store: TrackingStore, trial: TrialRecord, run: Run) -> None:
    store.start_run(trial.id, allocation_id="second")
    store.add_logs([LogLine(trial_id=trial.id, run_id=1, rank=0, stdtype="stderr", log="ah", time=trial.start_time)])
    assert [line.log for line in store.logs(trial.id)] == ["ah"]


def test_unknown_trials_raise_an_error(store: TrackingStore, trial: TrialRecord) -> None:
    report = MetricsReport(trial_id=9, run_id=1, group="training", steps_completed=1, metrics={})
    calls = (
        lambda: store.trial(9),
        lambda: store.set_trial_state(9, State.ACTIVE),
        lambda: store.count_restart(9),
        lambda: store.start_run(9, allocation_id="a"),
        lambda: store.start_run(9, allocation_id="a", lease="me"),
        lambda: store.run(9, 1),
        lambda: store.acknowledge_preemption(9, 1),
        lambda: store.report_early_exit(9, 1, "x"),
        lambda: store.set_runner_state(9, 1, "x"),
        lambda: store.set_trial_metadata(9, 1, {}),
        lambda: store.report_metrics([report]),
        lambda: store.metrics(9),
        lambda: store.begin_checkpoint("c", trial_id=9, run_id=1, storage={}),
        lambda: store.checkpoints(trial_id=9),
        lambda: store.logs(9),
        lambda: store.add_logs(
            [LogLine(trial_id=9, run_id=1, rank=0, stdtype="stdout", log="", time=trial.start_time)]
        ),
    )
    for call in calls:
        with pytest.raises(RecordNotFound, match="trial 9 in"):
            call()
    with pytest.raises(RecordNotFound, match=f"run 4 of trial {trial.id}"):
        store.run(trial.id, 4)
