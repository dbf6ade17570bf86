"""Searches whose trials train at once, as real processes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from det_core.interfaces.records import TRAINING_STATE, ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore

from ..waiting import interrupt_once, wait_for
from .conftest import Submit, start_runner
from .experiment_runs import run

pytestmark = pytest.mark.integration


AT_ONCE = {"launcher": {"type": "local", "slots": 2}, "max_restarts": 1}
SPACE = {"x": {"type": "int", "minval": 0, "maxval": 1000}}


def random_search(trials: int, batches: int = 10) -> dict[str, Any]:
    return {
        "searcher": {
            "name": "random",
            "metric": "validation_loss",
            "max_trials": trials,
            "max_length": {"batches": batches},
        },
        "hyperparameters": SPACE,
        **AT_ONCE,
    }


def events(store: TrackingStore, experiment: ExperimentRecord) -> list[Any]:
    return [event.event for event in store.search_events(experiment.id)]


WITH_NEIGHBOURS = """
def on_batch(self, batch):
    here = Path({place!r}) / det.get_cluster_info().task_id
    here.touch()
    if batch == 9:
        neighbours = [one for one in here.parent.iterdir() if one != here]
        assert len(neighbours) <= 1
        slots = det.get_cluster_info().slot_ids
        self.context.seen = (len(neighbours), slots)
        print("slots", *slots, flush=True)
        here.unlink()
        deadline = time.monotonic() + 20
        while {first} and not list(here.parent.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.01)
"""


def test_as_many_trials_train_as_there_are_slots(store: TrackingStore, new_experiment: Submit, tmp_path: Path) -> None:
    place = tmp_path / "training"
    place.mkdir()
    first = "self.context.get_trial_seed() == 7"  # this trial waits until another one trains, too
    experiment = new_experiment(WITH_NEIGHBOURS.format(place=str(place), first=first), **random_search(5))
    assert run(store, experiment) is State.COMPLETED
    trials = store.trials(experiment.id)
    assert [(trial.state, trial.steps_completed) for trial in trials] == [(State.COMPLETED, 10)] * 5
    slots = {line.log for trial in trials for line in store.logs(trial.id) if line.log.startswith("slots")}
    assert slots == {"slots 0", "slots 1"}
    assert store.experiment(experiment.id).progress == 1


def test_max_slots_is_respected(store: TrackingStore, new_experiment: Submit, tmp_path: Path) -> None:
    place = tmp_path / "training"
    place.mkdir()
    body = WITH_NEIGHBOURS.format(place=str(place), first="False").replace("<= 1", "== 0")
    experiment = new_experiment(body, **random_search(3), resources={"max_slots": 1})
    assert run(store, experiment) is State.COMPLETED
    assert {trial.restarts for trial in store.trials(experiment.id)} == {0}


def test_each_run_has_a_directory_of_its_own(store: TrackingStore, new_experiment: Submit) -> None:
    """Otherwise trials that train at the same time would overwrite each other's files."""
    body = (
        "def on_batch(self, batch):\n"
        "    file = Path('mine')\n"
        "    assert file.exists() == (batch > 0)\n"
        "    assert not batch or file.read_text() == det.get_cluster_info().allocation_id\n"
        "    file.write_text(det.get_cluster_info().allocation_id)\n"
    )
    experiment = new_experiment(body, **random_search(3))
    assert run(store, experiment) is State.COMPLETED
    assert {trial.run_id for trial in store.trials(experiment.id)} == {1}


def test_a_cleaner_of_temporary_files_does_not_remove_the_code(
    store: TrackingStore, new_experiment: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    body = (
        "def on_batch(self, batch):\n"
        "    import shutil\n"
        "    if batch == 0:\n"
        "        for path in Path(os.environ['TMPDIR']).iterdir(): shutil.rmtree(path)\n"
        "    assert Path('model_def.py').exists()\n"
    )
    experiment = new_experiment(body, max_restarts=0)
    assert run(store, experiment) is State.COMPLETED
    assert list((tmp_path / "det-home" / "runs").iterdir()) == []


def test_a_search_completes_with_failed_and_replaced_trials(store: TrackingStore, new_experiment: Submit) -> None:
    body = (
        "def on_batch(self, batch):\n"
        "    seed = self.context.get_trial_seed() - 7\n"
        "    if seed == 0: raise det.InvalidHP('no')\n"
        "    if seed == 1: raise RuntimeError('broken')\n"
    )
    experiment = new_experiment(body, **random_search(3))
    assert run(store, experiment) is State.COMPLETED
    states = [trial.state for trial in store.trials(experiment.id)]
    assert states == [State.COMPLETED, State.ERROR, State.COMPLETED, State.COMPLETED]
    assert {("on_exit", 0, "invalid_hp"), ("on_exit", 1, "error")} <= {
        tuple(event) for event in events(store, experiment)
    }
    assert store.experiment(experiment.id).error is None


def test_a_search_whose_trials_all_fail_is_an_error(store: TrackingStore, new_experiment: Submit) -> None:
    experiment = new_experiment("def on_batch(self, batch): raise RuntimeError('broken')", **random_search(2))
    assert run(store, experiment) is State.ERROR
    assert store.experiment(experiment.id).error == "RuntimeError: broken (batch 0, model_def.py:6)"


ONE_BY_ONE = {**random_search(6), "launcher": {"type": "local", "slots": 1}}


def test_a_search_that_stopped_before_training_starts_again_when_resumed(
    store: TrackingStore, new_experiment: Submit, tmp_path: Path
) -> None:
    experiment = new_experiment(f"def __init__(self, c): Path({str(tmp_path / 'data')!r}).read_text()\n", **ONE_BY_ONE)
    assert run(store, experiment) is State.ERROR
    (tmp_path / "data").mkdir()
    assert run(store, experiment) is State.ERROR
    assert len(store.trials(experiment.id)) == 6
    assert [trial.state for trial in store.trials(experiment.id)].count(State.ERROR) == 2


def test_promoted_trials_continue_from_their_checkpoints(store: TrackingStore, new_experiment: Submit) -> None:
    halving = {"name": "async_halving", "metric": "validation_loss", "num_rungs": 3, "divisor": 2, "max_trials": 4}
    experiment = new_experiment(
        "def on_batch(self, batch): print('batch', batch, flush=True)",
        searcher={**halving, "max_length": 20, "max_concurrent_trials": 1},
        hyperparameters=SPACE,
    )
    assert run(store, experiment) is State.COMPLETED
    trials = store.trials(experiment.id)
    assert sorted(trial.steps_completed for trial in trials) == [5, 5, 10, 20]
    for trial in trials:
        batches = [line.log for line in store.logs(trial.id) if line.log.startswith("batch")]
        assert batches == [f"batch {batch}" for batch in range(trial.steps_completed)]
        assert trial.run_id == {5: 1, 10: 2, 20: 3}[trial.steps_completed]
        assert (trial.state, trial.restarts) == (State.COMPLETED, 0)


def test_children_start_from_their_source(store: TrackingStore, new_experiment: Submit, context_dir: Path) -> None:
    (context_dir / "mine.py").write_text(
        "from det_core.interfaces.search_method import *\n"
        "class Chain(SearchMethod):\n"
        "    def __init__(self, options, hyperparameters, seed): pass\n"
        "    def start(self): return [Create(0, {}), Train(0, 10)]\n"
        "    def on_validation(self, request_id, length, metric):\n"
        "        return [Create(1, {}, source=0), Train(1, 10)] if request_id == 0 else [Close(0), Close(1)]\n"
        "    def on_exit(self, request_id, reason): return []\n"
    )
    experiment = new_experiment(
        searcher={"name": "custom", "metric": "validation_loss", "method": "mine:Chain", "unit": "batches"},
    )
    assert run(store, experiment) is State.COMPLETED
    parent, child = store.trials(experiment.id)
    assert child.source_checkpoint == store.checkpoints(trial_id=parent.id)[-1].uuid
    assert child.steps_completed == 10
    (beginning,) = [line.log for line in store.logs(child.id) if "starts from" in line.log]
    assert child.source_checkpoint in beginning


def test_a_paused_search_resumes(store: TrackingStore, new_experiment: Submit, tmp_path: Path) -> None:
    slow = "def on_batch(self, batch):\n    time.sleep(0.05)"
    experiment = new_experiment(slow, **random_search(3, 40))
    interrupt_once(lambda: any(trial.runner_state == TRAINING_STATE for trial in store.trials(experiment.id)))
    assert run(store, experiment) is State.PAUSED
    trials = store.trials(experiment.id)
    assert State.PAUSED in {trial.state for trial in trials}
    assert run(store, store.experiment(experiment.id)) is State.COMPLETED
    after = store.trials(experiment.id)
    assert [(trial.id, trial.hparams) for trial in after] == [(trial.id, trial.hparams) for trial in trials]
    assert [(trial.state, trial.steps_completed) for trial in after] == [(State.COMPLETED, 40)] * 3
    assert len(events(store, experiment)) == 4


def test_a_trial_that_fails_again_and_again_can_be_killed(store: TrackingStore, new_experiment: Submit) -> None:
    """The state ACTIVE that each restart records must not overwrite the request to kill."""
    crash = "def on_batch(self, batch): raise RuntimeError(os.getpid())"
    experiment = new_experiment(crash, **{**random_search(1), "max_restarts": 1000})

    def kill() -> None:
        (trial,) = wait_for(lambda: [trial for trial in store.trials(experiment.id) if trial.restarts])
        store.set_trial_state(trial.id, State.STOPPING_KILLED)

    threading.Thread(target=kill, daemon=True).start()
    assert run(store, experiment) is State.CANCELED
    assert store.trials(experiment.id)[0].state is State.CANCELED


def test_a_kill_that_no_runner_has_seen_is_done_by_the_next_one(store: TrackingStore, new_experiment: Submit) -> None:
    """The start of a waiting trial must not overwrite the request to kill."""
    experiment = new_experiment(**random_search(2))
    runner = start_runner(store, experiment.id)
    wait_for(lambda: store.trials(experiment.id))
    runner.kill()
    runner.wait(240)
    first, _ = store.trials(experiment.id)
    store.set_trial_state(first.id, State.STOPPING_KILLED)
    runs = store.trial(first.id).run_id
    assert run(store, experiment) is State.COMPLETED
    after = store.trials(experiment.id)
    assert [trial.state for trial in after] == [State.CANCELED, State.COMPLETED]
    assert after[0].run_id == runs


def test_the_search_continues_after_a_trial_is_killed(store: TrackingStore, new_experiment: Submit) -> None:
    forever = "def on_batch(self, batch):\n    while self.context.get_trial_seed() == 7: time.sleep(0.05)\n"
    experiment = new_experiment(forever, **random_search(3))
    runner = start_runner(store, experiment.id)
    try:
        wait_for(lambda: [trial.state for trial in store.trials(experiment.id)][1:] == [State.COMPLETED] * 2)
        store.set_trial_state(store.trials(experiment.id)[0].id, State.STOPPING_KILLED)
        assert runner.wait(240) == 0
    finally:
        runner.kill()
        runner.wait()
    assert [trial.state for trial in store.trials(experiment.id)] == [State.CANCELED, *[State.COMPLETED] * 2]
    assert store.experiment(experiment.id).state is State.COMPLETED
