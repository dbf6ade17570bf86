"""Experiments of several runners on the slots of one host."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from det_core.home import user_name
from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.machine_slots import list_slots
from det_core.runner import ExperimentRunner

from ..waiting import is_alive, wait_for
from .conftest import Submit, start_runner

pytestmark = pytest.mark.integration

WAITS = "def on_batch(self, batch):\n    while not Path({!r}).exists(): time.sleep(0.01)"


def first_logs(store: TrackingStore, experiment: ExperimentRecord) -> list[str]:
    return [line.log for trial in store.trials(experiment.id) for line in store.logs(trial.id)]


def holders() -> list[int]:
    return [one.holder.content.experiment_id for one in list_slots([])[0] if one.holder]


def queue() -> list[int]:
    return [one.content.experiment_id for one in list_slots([])[1]]


def test_experiments_take_turns(store: TrackingStore, new_experiment: Submit, tmp_path: Path) -> None:
    """The trials of two runners wait for the slot of a third, the more urgent one first. A killed runner frees it."""
    pid = tmp_path / "pid"
    forever = new_experiment(
        f"def on_batch(self, batch):\n    Path({str(pid)!r}).write_text(str(os.getpid()))\n    time.sleep(600)"
    )
    usual = new_experiment()
    urgent = new_experiment(resources={"priority": 41})
    holder = start_runner(store, forever.id)
    wait_for(lambda: holders() == [forever.id] and pid.exists() and pid.read_text())
    others = [start_runner(store, usual.id)]
    wait_for(lambda: queue() == [usual.id])
    others.append(start_runner(store, urgent.id))
    wait_for(lambda: queue() == [urgent.id, usual.id])
    wait_for(lambda: any("slot cpu-0 is held by" in line for line in first_logs(store, usual)))
    holder_name = f"experiment {forever.id} of {user_name()}, trial 1"
    held = f"slot cpu-0 is held by {holder_name}; wait for it, or add --config launcher.slots=2"
    waiting = f"queued (waiting for a slot: {held}; see `det slots`)"
    assert waiting in first_logs(store, usual)
    (trial,) = store.trials(usual.id)
    assert trial.state is State.QUEUED
    assert trial.placement.startswith("queued (waiting for a slot: ")
    holder.kill()
    assert holder.wait() == -signal.SIGKILL
    wait_for(lambda: holders() == [urgent.id])
    assert not is_alive(int(pid.read_text()))
    assert [runner.wait(240) for runner in others] == [0, 0]
    first, second = (store.trials(one.id)[0] for one in (urgent, usual))
    assert (first.state, second.state) == (State.COMPLETED, State.COMPLETED)
    assert first.end_time and second.end_time
    assert first.end_time < second.end_time
    assert (holders(), queue()) == ([], [])


@pytest.mark.parametrize("state", [State.PAUSED, State.STOPPING_KILLED])
def test_a_waiting_trial_can_be_stopped(
    store: TrackingStore, new_experiment: Submit, tmp_path: Path, state: State
) -> None:
    holding, waiting = new_experiment(WAITS.format(str(tmp_path / "end"))), new_experiment()
    ended = {}

    def train() -> None:
        ended["holding"] = ExperimentRunner(store, holding.id).run()

    def stop() -> None:
        wait_for(lambda: queue() == [waiting.id])
        wait_for(lambda: first_logs(store, waiting)[1:])
        store.set_experiment_state(waiting.id, state)
        wait_for(lambda: queue() == [])

    threads = [threading.Thread(target=one, daemon=True) for one in (train, stop)]
    threads[0].start()
    wait_for(lambda: holders() == [holding.id])
    threads[1].start()
    expected = State.PAUSED if state is State.PAUSED else State.CANCELED
    assert ExperimentRunner(store, waiting.id).run() is expected
    (trial,) = store.trials(waiting.id)
    assert (trial.state, trial.restarts) == (expected, 0)
    (tmp_path / "end").touch()
    for thread in threads:
        thread.join(120)
    assert ended == {"holding": State.COMPLETED}
