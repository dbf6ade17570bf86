"""Trials on several slots, on a third-party backend."""

from __future__ import annotations

import os
import re
import signal
import threading
from contextlib import closing
from datetime import datetime, timezone
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from det_core.errors import InvalidExperimentException
from det_core.interfaces.records import CheckpointState, ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.machine_slots import SlotReservation, reserve_slots
from det_core.package_commands import package_command
from det_core.plugins import plugin_registry
from det_core.plugins._known_distributions import DISTRIBUTIONS
from det_core.runner import start_detached

from ..waiting import interrupt_once, is_alive, wait_for
from .conftest import Submit, install_plugin
from .experiment_runs import run, the_trial

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples"
RING, DESCENT = EXAMPLES / "backend_plugin" / "det_ring.py", EXAMPLES / "framework_plugin" / "det_descent.py"
TWO = {"resources": {"slots_per_trial": 2}, "launcher": {"type": "local", "slots": 2}}
AVERAGED = """
def on_batch(self, batch):
    workers = self.context.distributed
    self.weight = sum(workers.allgather(self.weight)) / workers.size
"""


@pytest.fixture
def only_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the backends of det, even if they are installed."""
    monkeypatch.setenv("DET_DISABLE_PLUGINS", ",".join(DISTRIBUTIONS["backend"].values()))
    plugin_registry.cache_clear()


@pytest.fixture
def ring(plugin_site: Path, monkeypatch: pytest.MonkeyPatch, only_theirs: None) -> None:
    install_plugin(plugin_site, RING, monkeypatch)


@pytest.fixture
def on_two_slots(ring: None, new_experiment: Submit) -> Submit:
    return lambda body, **changes: new_experiment(body, **{**TWO, **changes})


def history(store: TrackingStore, experiment: ExperimentRecord) -> list[Any]:
    reports = store.metrics(the_trial(store, experiment).id)
    return [(one.group, one.steps_completed, one.metrics, one.batch_metrics) for one in reports]


def logs(store: TrackingStore, experiment: ExperimentRecord) -> list[tuple[int, str]]:
    return [(line.rank, line.log) for line in store.logs(the_trial(store, experiment).id)]


def test_two_slots_train_as_one_does(store: TrackingStore, new_experiment: Submit, on_two_slots: Submit) -> None:
    alone = new_experiment(AVERAGED)
    assert run(store, alone) is State.COMPLETED
    both = on_two_slots(AVERAGED + "    if batch == 7: print('I am', workers.rank, 'of', workers.size)")
    assert run(store, both) is State.COMPLETED
    assert history(store, both) == history(store, alone)
    assert {(rank, f"I am {rank} of 2") for rank in (0, 1)} <= set(logs(store, both))


@pytest.mark.parametrize("guilty", [0, 1])
def test_the_first_failure_is_the_reason_and_names_its_rank(
    store: TrackingStore, on_two_slots: Submit, guilty: int
) -> None:
    raising = f"    if batch == 7 and workers.rank == {guilty}: raise RuntimeError('a defect')"
    experiment = on_two_slots(AVERAGED + raising, max_restarts=0)
    assert run(store, experiment) is State.ERROR
    reason = f"rank {guilty}: RuntimeError: a defect (batch 7, model_def.py:10)"
    assert store.experiment(experiment.id).error == reason
    assert logs(store, experiment).count((guilty, "RuntimeError: a defect")) == 1


def test_a_worker_that_exits_is_reported_as_the_reason(store: TrackingStore, on_two_slots: Submit) -> None:
    experiment = on_two_slots(AVERAGED + "    if workers.rank == 1: raise SystemExit(3)", max_restarts=0)
    assert run(store, experiment) is State.ERROR
    assert store.experiment(experiment.id).error == "rank 1: it exited with 3"


def test_a_killed_worker_is_reported_as_the_reason(store: TrackingStore, on_two_slots: Submit) -> None:
    killed = "    if batch == 7 and workers.rank == 1: os.kill(os.getpid(), signal.SIGKILL)"
    experiment = on_two_slots(AVERAGED + killed, max_restarts=0)
    assert run(store, experiment) is State.ERROR
    assert str(store.experiment(experiment.id).error).startswith("rank 1: the process died")


def test_copies_of_a_trial_are_refused_without_a_restart(
    store: TrackingStore, on_two_slots: Submit, plugin_site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source does not show the framework of the trial, so the workers refuse it."""
    install_plugin(plugin_site, DESCENT, monkeypatch)
    methods = dict.fromkeys(["build", "gradient", "evaluate"])
    body = f"import det_descent\nglobals()['U'] = type('U', (det_descent.DescentTrial,), {methods})"
    experiment = on_two_slots(body, entrypoint="model_def:U")
    assert run(store, experiment) is State.ERROR
    assert "'descent' can train on several slots only" in str(store.experiment(experiment.id).error)
    assert the_trial(store, experiment).run_id == 1


@pytest.mark.slow
@pytest.mark.parametrize("guilty", [0, 1])
def test_sigkill_of_one_worker_changes_nothing(
    store: TrackingStore, new_experiment: Submit, on_two_slots: Submit, tmp_path: Path, guilty: int
) -> None:
    mark = tmp_path / "mark"
    killed = f"""
    mark = Path({str(mark)!r})
    if batch == 23 and workers.rank == {guilty} and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
"""
    periods = {"min_checkpoint_period": {"batches": 9}}
    calm, disturbed = new_experiment(AVERAGED, **periods), on_two_slots(AVERAGED + killed, **periods)
    assert run(store, calm) is run(store, disturbed) is State.COMPLETED
    assert the_trial(store, disturbed).restarts == 1
    assert history(store, disturbed) == history(store, calm)


@pytest.mark.slow
def test_all_workers_stop_together(
    store: TrackingStore, new_experiment: Submit, on_two_slots: Submit, tmp_path: Path
) -> None:
    slowly = f"    Path({str(tmp_path)!r}, f'at_{{workers.rank}}').touch()\n    time.sleep(0.05)"
    calm, paused = new_experiment(AVERAGED), on_two_slots(AVERAGED + slowly, max_restarts=0)
    assert run(store, calm) is State.COMPLETED
    interrupt_once(lambda: len(list(tmp_path.glob("at_*"))) == 2)
    assert run(store, paused) is State.PAUSED
    assert run(store, paused) is State.COMPLETED
    assert (the_trial(store, paused).run_id, the_trial(store, paused).restarts) == (2, 0)
    assert history(store, paused) == history(store, calm)


def test_all_workers_fall_back_to_the_same_checkpoint(
    store: TrackingStore, new_experiment: Submit, on_two_slots: Submit, tmp_path: Path
) -> None:
    """A damaged checkpoint costs both workers the same batches, and no restart."""
    periods = {"min_checkpoint_period": {"batches": 10}, "max_restarts": 1}
    damage = f"""
    mark = Path({str(tmp_path / "mark")!r})
    if batch == 35 and workers.rank == 0 and not mark.exists():
        import det_core
        from det_core.tracking import open_store
        with open_store(det_core.get_cluster_info().master_url) as store:
            while (newest := store.checkpoints(trial_id=self.context.get_trial_id())[-1]).steps_completed < 30:
                time.sleep(0.01)  # it is stored in the background
        file = Path(newest.storage["container_path"], newest.uuid, "toy.json")
        file.chmod(0o600)
        file.write_text("?")
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
"""
    calm, hurt = new_experiment(AVERAGED, **periods), on_two_slots(AVERAGED + damage, **periods)
    assert run(store, calm) is run(store, hurt) is State.COMPLETED
    (trial,) = store.trials(hurt.id)
    assert (trial.restarts, trial.run_id) == (1, 3)
    ((damaged,), (other,)) = (
        store.checkpoints(trial_id=trial.id, states=[CheckpointState.ERROR]),
        store.trials(calm.id),
    )
    assert damaged.steps_completed == 30
    assert [(m.group, m.steps_completed, m.metrics) for m in store.metrics(trial.id)] == [
        (m.group, m.steps_completed, m.metrics) for m in store.metrics(other.id)
    ]


@pytest.mark.usefixtures("new_processes")
def test_a_kill_ends_all_workers(store: TrackingStore, on_two_slots: Submit, tmp_path: Path) -> None:
    body = (
        f"def on_batch(self, batch):\n    Path({str(tmp_path)!r}, f'pid_{{os.getpid()}}').touch()\n    time.sleep(600)"
    )
    experiment = on_two_slots(body)

    def kill() -> None:
        wait_for(lambda: len(list(tmp_path.glob("pid_*"))) == 2)
        store.set_experiment_state(experiment.id, State.STOPPING_KILLED)

    threading.Thread(target=kill, daemon=True).start()
    assert run(store, experiment) is State.CANCELED
    assert not any(is_alive(int(path.name.removeprefix("pid_"))) for path in tmp_path.glob("pid_*"))


@pytest.mark.slow
def test_no_worker_outlives_the_runner(store: TrackingStore, on_two_slots: Submit, tmp_path: Path) -> None:
    mark = f"Path({str(tmp_path)!r}, f'pid_{{os.getpid()}}').touch()"
    experiment = on_two_slots(f"def on_batch(self, batch):\n    {mark}\n    time.sleep(600)")
    start_detached(store, experiment.id)
    wait_for(lambda: len(list(tmp_path.glob("pid_*"))) == 2)
    pids = [int(path.name.removeprefix("pid_")) for path in tmp_path.glob("pid_*")]
    os.kill(int(str(store.lease_holder(experiment.id)).rsplit(":", 3)[1]), signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, pids)), seconds=60)


def test_invalid_hyperparameters_of_one_worker_end_the_trial(store: TrackingStore, on_two_slots: Submit) -> None:
    experiment = on_two_slots(AVERAGED + "    if workers.rank == 1: raise det.InvalidHP('too deep')")
    assert run(store, experiment) is State.COMPLETED
    trial = the_trial(store, experiment)
    assert (trial.run_id, store.run(trial.id, 1).early_exit) == (1, "EXITED_REASON_INVALID_HP")


def test_one_slot_may_use_a_backend(store: TrackingStore, on_two_slots: Submit) -> None:
    experiment = on_two_slots(AVERAGED, resources={"slots_per_trial": 1}, distributed={"backend": "ring", "grace": 1})
    assert run(store, experiment) is State.COMPLETED


@pytest.mark.usefixtures("only_theirs")
def test_several_slots_without_a_backend_say_what_to_install(new_experiment: Submit) -> None:
    command = re.escape(package_command("install", "det-torch-distributed"))
    with pytest.raises(InvalidExperimentException, match=f"slots_per_trial is 2, but no .* {command}"):
        new_experiment(**TWO)


def test_an_uninstalled_backend_fails_the_trial(
    store: TrackingStore, on_two_slots: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = on_two_slots("pass")
    monkeypatch.setenv("DET_DISABLE_PLUGINS", "det-ring," + os.environ["DET_DISABLE_PLUGINS"])
    plugin_registry.cache_clear()
    assert run(store, experiment) is State.ERROR
    assert "no distributed backend is installed" in str(store.experiment(experiment.id).error)


def test_an_elastic_trial_follows_what_is_free(
    store: TrackingStore, ring: None, new_experiment: Submit, tmp_path: Path
) -> None:
    """Train on 4, 2, 4 and 1 slots while others take slots and return them, with the results of 4 slots."""
    disturbed = f"""
    if workers.rank == 0:
        with Path({str(tmp_path / "sizes")!r}).open("a") as file: print(batch, workers.size, file=file)
    first, two, second = (Path({str(tmp_path)!r}, name) for name in ('first', 'two', 'second'))
    mark = second if two.exists() else first
    if workers.size == 4 and workers.rank == 1 and batch % 10 == 2 and batch > 10 and not mark.exists():
        mark.touch()
        while not Path(f'{{mark}}_taken').exists(): time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    if workers.size == 2:
        two.touch()
        time.sleep(0.1)
"""
    keys = {
        "launcher": {"type": "local", "slots": 4},
        "hyperparameters": {"global_batch_size": 8},
        "min_checkpoint_period": {"batches": 10},
        "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 200}},
    }
    four = {"slots_per_trial": 4}
    calm = new_experiment(AVERAGED, **keys, resources=four)
    assert run(store, calm) is State.COMPLETED
    elastic = new_experiment(
        AVERAGED + disturbed, **keys, resources={**four, "min_slots_per_trial": 1, "elastic_timeout": 1}
    )

    def take(count: int, mark: str) -> SlotReservation:
        """Go before the trial in the queue, and take slots when its worker has been killed."""
        wait_for((tmp_path / mark).exists)
        names = [f"cpu-{index}" for index in range(4)]
        taken = reserve_slots(names, count, priority=1, submitted=datetime.now(timezone.utc))
        assert taken.poll() is None
        (tmp_path / f"{mark}_taken").touch()
        wait_for(taken.poll)
        return taken

    def disturb() -> None:
        with closing(take(2, "first")):
            wait_for((tmp_path / "two").exists)
        with closing(take(3, "second")):
            wait_for(ended.is_set)

    ended = threading.Event()
    others = threading.Thread(target=disturb, daemon=True)
    others.start()
    try:
        assert run(store, elastic) is State.COMPLETED
    finally:
        ended.set()
        others.join(60)
    assert history(store, elastic) == history(store, calm)
    trained = [line.split() for line in (tmp_path / "sizes").read_text().splitlines()]
    assert [size for size, _ in groupby(size for _, size in trained)] == ["4", "2", "4", "1"]
    last = {int(batch): size for batch, size in trained}
    assert sorted(last) == list(range(200))
    assert the_trial(store, elastic).restarts == 2
