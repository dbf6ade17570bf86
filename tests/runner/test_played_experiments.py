"""Experiments from submission to their end, on a launcher that starts no process."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from det_testing.small_disk import fill_disk, remount_read_only, small_disk

from det_core.errors import DetError, DiskError, ExperimentBusy, LaunchError, StaleRun, StoreBusy
from det_core.interfaces.launcher import Exit, LaunchRequest
from det_core.interfaces.records import ExperimentRecord, MetricsReport, State
from det_core.interfaces.secrets import Secret
from det_core.interfaces.server_store import ServerStore
from det_core.interfaces.tracking import TrackingStore
from det_core.interfaces.webhook_records import WebhookFormat, secret_block
from det_core.runner import ExperimentRunner, _experiment_runner
from det_core.runner._restart_policy import LIMITS, Count
from det_core.tracking._lease import Lease
from det_core.tracking.secret_files import store_secrets
from det_core.tracking.webhook_request import create_key

from ..webhook_receiver import receiving
from .conftest import Submit, install_plugin
from .played_launcher import FAILURE, SUCCESS, PlayedLauncher, Step, run_ids, save_checkpoint

Run = Callable[..., State]


class Cluster(PlayedLauncher):
    """Launcher on which all launches do the same."""

    def __init__(self, step: Step, slots: int | None) -> None:
        super().__init__(*[step] * 100)
        self.slots = slots


@pytest.fixture
def played(store: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run an experiment whose launches all end as given."""

    def run(experiment: ExperimentRecord, step: Step = SUCCESS, slots: int | None = 1) -> State:
        monkeypatch.setattr(_experiment_runner, "open_launcher", lambda config: Cluster(step, slots))
        return ExperimentRunner(store, experiment.id).run()

    return run


def search(trials: int, **resources: int) -> dict[str, Any]:
    return {
        "searcher": {"name": "random", "metric": "loss", "max_trials": trials, "max_length": {"batches": 10}},
        "hyperparameters": {"x": {"type": "int", "minval": 0, "maxval": 9}},
        "resources": resources,
        "max_restarts": 0,
    }


def test_a_completed_experiment_is_not_run_again(store: TrackingStore, new_experiment: Submit, played: Run) -> None:
    experiment = new_experiment()
    assert played(experiment) is State.COMPLETED
    record = store.experiment(experiment.id)
    assert (record.state, record.progress, record.error) == (State.COMPLETED, 1.0, None)
    assert store.lease_holder(experiment.id) is None
    assert played(record, LaunchError("never")) is State.COMPLETED


def test_webhooks_are_called_before_the_runner_ends(store: TrackingStore, new_experiment: Submit, played: Run) -> None:
    assert isinstance(store, ServerStore)
    with receiving() as receiver:
        references = store_secrets(secret_block("pager", receiver.url, key := Secret(create_key())))
        options = {"key": references[key], "format": WebhookFormat.DEFAULT, "private": True}
        store.create_webhook("pager", url=receiver.url, states=[State.ACTIVE, State.ERROR], **options)
        assert played(new_experiment(max_restarts=0), FAILURE) is State.ERROR
        assert [body["condition"]["state"] for body in receiver.confirmed] == ["ACTIVE", "ERROR"]


def test_a_runner_takes_over_what_was_changed_before_it_held_the_experiment(
    store: TrackingStore, new_experiment: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = new_experiment()
    runner = ExperimentRunner(store, experiment.id)
    longer = {**experiment.config["searcher"], "max_length": {"batches": 60}}
    changed = {**experiment.config, "searcher": longer}
    store.continue_experiment(experiment.id, config=changed, original_config="", restart_search=True)
    monkeypatch.setattr(_experiment_runner, "open_launcher", lambda config: Cluster(SUCCESS, 1))
    assert runner.run() is State.COMPLETED
    assert [trial.searcher_length for trial in store.trials(experiment.id)] == [60]


def test_an_experiment_whose_trials_fail_is_an_error(store: TrackingStore, new_experiment: Submit, played: Run) -> None:
    experiment = new_experiment(**search(1))
    assert played(experiment, FAILURE) is State.ERROR
    record = store.experiment(experiment.id)
    assert (record.state, record.error) == (State.ERROR, "the worker exited with code 1")
    several = new_experiment(**search(4))
    assert played(several, FAILURE) is State.ERROR
    error = "the worker exited with code 1 (2 trials failed like this before training, and none trained)"
    assert store.experiment(several.id).error == error


def test_an_experiment_that_cannot_be_launched_is_paused_and_resumed(
    store: TrackingStore, new_experiment: Submit, played: Run
) -> None:
    experiment = new_experiment(**search(3))
    assert played(experiment, LaunchError("no such node")) is State.PAUSED
    assert store.experiment(experiment.id).error == "no such node"
    assert played(experiment) is State.COMPLETED
    assert store.experiment(experiment.id).error is None


@pytest.mark.parametrize(
    ("slots", "resources", "expected"),
    [
        (2, {}, 2),
        (4, {"slots_per_trial": 2}, 2),
        (5, {"slots_per_trial": 2}, 2),
        (1, {"slots_per_trial": 2}, 1),
        (4, {"slots_per_trial": 0}, 4),
        (4, {"max_slots": 3}, 3),
        (None, {"max_slots": 2}, 2),
        (None, {}, 6),
    ],
)
def test_trials_share_the_slots(
    new_experiment: Submit, played: Run, slots: int | None, resources: dict[str, int], expected: int
) -> None:
    together = threading.Barrier(expected)
    most, running, lock = [0], [0], threading.Lock()

    def work(request: LaunchRequest) -> Exit:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        together.wait(60)  # fails unless as many trials run at once
        with lock:
            running[0] -= 1
        return SUCCESS

    trials = 6 - 6 % expected
    keys = {**search(trials, **resources), "launcher": {"type": "local", "slots": 8}}
    assert played(new_experiment(**keys, entrypoint="train"), work, slots) is State.COMPLETED
    assert most == [expected]


def test_a_storage_that_cannot_be_written_is_an_error(
    store: TrackingStore, new_experiment: Submit, played: Run, tmp_path: Path
) -> None:
    block = {"type": "directory", "container_path": str(tmp_path / "checkpoints")}
    experiment = new_experiment(checkpoint_storage=block)
    shutil.rmtree(tmp_path / "checkpoints")
    (tmp_path / "checkpoints").touch()
    with pytest.raises(DetError, match="cannot write checkpoints under"):
        played(experiment)
    record = store.experiment(experiment.id)
    assert record.state is State.ERROR
    assert "cannot write checkpoints" in str(record.error)
    assert store.trials(experiment.id) == []


@pytest.mark.parametrize(
    ("place", "break_disk"),
    [("det-home/runs", fill_disk), ("checkpoints", fill_disk), ("new-home", remount_read_only)],
)
def test_a_disk_that_cannot_be_written_at_the_start_pauses(
    store: TrackingStore,
    new_experiment: Submit,
    played: Run,
    context_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    break_disk: Callable[[Path], object],
) -> None:
    (context_dir / "data").write_bytes(os.urandom(1 << 17))
    experiment = new_experiment(
        checkpoint_storage={"type": "directory", "container_path": str(tmp_path / "checkpoints")}
    )
    shutil.rmtree(tmp_path / place, ignore_errors=True)
    if place == "new-home":
        monkeypatch.setenv("DET_HOME", str(tmp_path / place))
    resume = rf"The experiment was stopped.*det experiment resume {experiment.id}$"
    with small_disk(tmp_path / place, size=1 << 16) as disk:
        break_disk(disk)
        with pytest.raises(DetError, match=rf"the disk of {disk}\S* \(0 MB free\) (has no|is read-).*{resume}"):
            played(experiment)
    record = store.experiment(experiment.id)
    assert record.state is State.PAUSED
    assert played(record) is State.COMPLETED


@pytest.mark.parametrize(
    ("end", "state", "kept"),
    [(SUCCESS, State.COMPLETED, ["after-8-in-1"]), (FAILURE, State.ERROR, ["after-4-in-1", "after-8-in-1"])],
)
def test_superfluous_checkpoints_are_removed_after_the_end_of_a_search(
    store: TrackingStore, new_experiment: Submit, played: Run, tmp_path: Path, end: Exit, state: State, kept: list[str]
) -> None:
    block = {"type": "directory", "container_path": str(tmp_path / "checkpoints"), "save_trial_latest": 1}
    experiment = new_experiment(max_restarts=0, checkpoint_storage=block)

    def work(request: LaunchRequest) -> Exit:
        for steps in (4, 8):
            save_checkpoint(store, request, steps)
        return end

    assert played(experiment, work) is state
    assert [one.uuid for one in store.checkpoints(experiment_id=experiment.id)] == kept
    assert sorted(path.parent.name for path in (tmp_path / "checkpoints").glob("*/metadata.json")) == kept


def test_an_unavailable_database_leaves_the_experiment_to_be_resumed(
    store: TrackingStore, new_experiment: Submit, played: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: TrackingStore, *ids: Any, **others: Any) -> None:
        raise StoreBusy("the database is locked.")

    experiment = new_experiment()
    with monkeypatch.context() as patch:
        patch.setattr(type(store), "start_run", refuse)
        with pytest.raises(StoreBusy, match=rf"locked\. .* det experiment resume {experiment.id}$"):
            played(experiment)
    record = store.experiment(experiment.id)
    assert (record.state, record.error) == (State.PAUSED, "the database is locked.")
    assert played(record) is State.COMPLETED


def test_an_unexpected_error_of_a_launcher_pauses(
    store: TrackingStore, new_experiment: Submit, played: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, Count.LAUNCH_SECONDS, -1)
    experiment = new_experiment()
    assert played(experiment, KeyError("a defect")) is State.PAUSED
    assert store.experiment(experiment.id).error == "the launcher raised KeyError: 'a defect'"


@pytest.mark.parametrize(
    ("error", "calls", "trials", "state"),
    [
        (KeyError("a defect"), ["preempt", "close"], State.PAUSED, State.ERROR),
        (StoreBusy("locked"), ["preempt", "close"], State.PAUSED, State.PAUSED),
        (MemoryError(), ["preempt", "close"], State.PAUSED, State.PAUSED),
        (OSError(errno.ENOSPC, "No space left on device"), ["preempt", "close"], State.PAUSED, State.PAUSED),
        (DiskError("a disk has failed"), ["preempt", "close"], State.PAUSED, State.PAUSED),
        (StaleRun("replaced"), ["preempt", "kill", "close"], State.ACTIVE, State.ACTIVE),
    ],
    ids=["a defect", "no database", "no memory", "a full disk", "a broken disk", "another runner"],
)
def test_trials_stop_when_an_error_ends_their_search(
    store: TrackingStore,
    new_experiment: Submit,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    calls: list[str],
    trials: State,
    state: State,
) -> None:
    launcher = PlayedLauncher(None, None, stops="kill" not in calls)
    launcher.slots = 2
    monkeypatch.setattr(_experiment_runner, "open_launcher", lambda config: launcher)
    experiment = new_experiment(**search(2), launcher={"type": "local", "slots": 2})

    def break_down() -> None:
        if len(launcher.allocations) == 2:
            raise error

    paused = state is State.PAUSED
    with pytest.raises(
        DetError if paused else type(error), match=r"[^.]\. The experiment was stopped" if paused else None
    ):
        ExperimentRunner(store, experiment.id).run(break_down)
    assert [one.calls for one in launcher.allocations] == [calls] * 2
    assert [trial.state for trial in store.trials(experiment.id)] == [trials] * 2
    assert store.experiment(experiment.id).state is state


def test_an_experiment_has_one_runner(store: TrackingStore, new_experiment: Submit, played: Run) -> None:
    experiment = new_experiment()
    lease = Lease(store, experiment.id)
    with pytest.raises(ExperimentBusy):
        played(experiment)
    lease.release()
    assert store.experiment(experiment.id).state is State.QUEUED


@pytest.mark.parametrize(
    ("request_", "state"),
    [
        (State.PAUSED, State.PAUSED),
        (State.STOPPING_CANCELED, State.CANCELED),
        (State.STOPPING_KILLED, State.CANCELED),
    ],
)
def test_a_request_in_the_store_ends_an_experiment(
    store: TrackingStore, new_experiment: Submit, played: Run, request_: State, state: State
) -> None:
    experiment = new_experiment(preemption_timeout=0)

    def ask(request: LaunchRequest) -> None:
        store.set_experiment_state(experiment.id, request_)

    assert played(experiment, ask) is state
    assert store.experiment(experiment.id).state is state
    assert [trial.state for trial in store.trials(experiment.id)] == [state]


@pytest.mark.parametrize("request_", [State.STOPPING_CANCELED, State.STOPPING_KILLED])
def test_a_request_that_its_runner_did_not_live_to_carry_out_ends_the_experiment(
    store: TrackingStore, new_experiment: Submit, monkeypatch: pytest.MonkeyPatch, request_: State
) -> None:
    """The lease of a runner that died on another host counts for some seconds, in which requests are recorded."""
    opened: list[Any] = []
    monkeypatch.setattr(PlayedLauncher, "open", lambda launcher, *args: opened.append(args))
    launcher = PlayedLauncher(SUCCESS)
    launcher.adopts = True
    monkeypatch.setattr(_experiment_runner, "open_launcher", lambda config: launcher)
    experiment = new_experiment()
    trial = store.create_trial(experiment.id, hparams={}, seed=0)
    store.start_run(trial.id, allocation_id="a")
    store.acquire_lease(experiment.id, "elsewhere", seconds=60.0, state=State.ACTIVE)
    assert store.request_experiment_state(experiment.id, request_)
    store.acquire_lease(experiment.id, "elsewhere", seconds=0.0)
    assert ExperimentRunner(store, experiment.id).run() is State.CANCELED
    ((_, keep, _),) = opened
    assert (keep, launcher.requests) == ((), [])  # what works in the engine is removed, not adopted
    assert ExperimentRunner(store, experiment.id).run() is State.COMPLETED


def test_an_experiment_of_a_script_is_not_run(store: TrackingStore) -> None:
    experiment = store.create_experiment(config={}, unmanaged=True)
    with pytest.raises(DetError, match="recorded by a script, which continues with: "):
        ExperimentRunner(store, experiment.id)


NOTING = """
import det_core
seen = []
@det_core.hookimpl
def det_experiment_started(event): seen.append((event.name, event.experiment_id, event.resumed))
@det_core.hookimpl
def det_trial_started(event): seen.append((event.name, event.trial_id, event.run_id, event.hparams))
@det_core.hookimpl
def det_logs_recorded(event): seen.extend((event.name, event.run_id, line.log) for line in event.lines)
@det_core.hookimpl
def det_trial_finished(event): seen.append((event.name, event.trial_id, event.state.value, event.error, event.best))
@det_core.hookimpl
def det_experiment_finished(event):
    seen.append((event.name, event.state.value, event.error, event.best, event.best_trial_id))
"""


def test_hooks_receive_the_events_of_the_runner(
    store: TrackingStore,
    new_experiment: Submit,
    played: Run,
    plugin_site: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "det_noting.py").write_text(NOTING)
    install_plugin(plugin_site, tmp_path / "det_noting.py", monkeypatch)
    experiment = new_experiment(max_restarts=0, hyperparameters={"x": 1})

    def act(request: LaunchRequest) -> Exit | Exception:
        ids = run_ids(request)
        if ids["run_id"] == 1:
            return LaunchError("no such node")
        report = MetricsReport(**ids, group="validation", steps_completed=5, metrics={"validation_loss": 0.5})
        store.report_metrics([report])
        return FAILURE

    assert (played(experiment, act), played(experiment, act)) == (State.PAUSED, State.ERROR)
    (trial,) = store.trials(experiment.id)
    error = "the worker exited with code 1"
    events = sys.modules["det_noting"].seen
    assert [event for event in events if event[0] != "logs_recorded"] == [
        ("experiment_started", experiment.id, False),
        ("trial_started", trial.id, 1, {"x": 1}),
        ("experiment_finished", "PAUSED", "no such node", None, None),
        ("experiment_started", experiment.id, True),
        ("trial_started", trial.id, 2, {"x": 1}),
        ("trial_finished", trial.id, "ERROR", error, 0.5),
        ("experiment_finished", "ERROR", error, 0.5, trial.id),
    ]
    lines = [event[1:] for event in events if event[0] == "logs_recorded"]
    assert lines == [(line.run_id, line.log) for line in store.logs(trial.id)]
