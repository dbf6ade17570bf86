"""One experiment from its config to its final state, with real worker processes."""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from det_testing import campaign_seeds
from det_testing.small_disk import fill_disk, small_disk

from det_core.config import parse_config
from det_core.errors import DetError, ExperimentBusy, InvalidExperimentException, LaunchError
from det_core.interfaces.records import TRAINING_STATE, CheckpointState, ExperimentRecord, State, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.launch.launchers import open_launcher
from det_core.runner import ExperimentRunner, start_detached, submit_experiment
from det_core.runner._launch_request import build_launch_request
from det_core.runner._restart_policy import LIMITS, Count
from det_core.tracking import open_store
from det_core.tracking._lease import Lease

from ..answering_server import Behaviour, served
from ..waiting import interrupt_once, is_alive, wait_for
from .conftest import Submit, install_plugin
from .experiment_runs import run, the_trial

pytestmark = pytest.mark.integration


def history(store: TrackingStore, trial_id: int) -> list[tuple[str, int, Any, Any]]:
    return [(m.group, m.steps_completed, m.metrics, m.batch_metrics) for m in store.metrics(trial_id)]


def log_of(store: TrackingStore, experiment: ExperimentRecord) -> str:
    return "\n".join(line.log for line in store.logs(the_trial(store, experiment).id))


def kill_for_good(pid: int) -> None:
    """Send SIGKILL and wait until the process is gone, because os.kill returns earlier."""
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid))


def test_a_trial_trains_to_its_end(store: TrackingStore, new_experiment: Submit) -> None:
    experiment = new_experiment(min_validation_period={"batches": 20}, min_checkpoint_period={"epochs": 3})
    assert run(store, experiment) is State.COMPLETED
    trial = the_trial(store, experiment)
    assert (trial.state, trial.steps_completed, trial.run_id, trial.restarts) == (State.COMPLETED, 50, 1, 0)
    steps = [(group, step) for group, step, _, _ in history(store, trial.id)]
    training, validation = ([s for g, s in steps if g == group] for group in ("training", "validation"))
    assert (training, validation) == ([10, 20, 30, 40, 50], [20, 40, 50])
    assert [c.steps_completed for c in store.checkpoints(trial_id=trial.id)][-1] == 50
    assert 30 in [c.steps_completed for c in store.checkpoints(trial_id=trial.id)]
    assert store.experiment(experiment.id).progress == 1


def test_initial_validation_and_checkpoint_policy_all_are_applied(store: TrackingStore, new_experiment: Submit) -> None:
    experiment = new_experiment(
        perform_initial_validation=True, checkpoint_policy="all", min_validation_period={"records": 80}
    )
    assert run(store, experiment) is State.COMPLETED
    trial = the_trial(store, experiment)
    assert [s for g, s, _, _ in history(store, trial.id) if g == "validation"] == [0, 20, 40, 50]
    assert [c.steps_completed for c in store.checkpoints(trial_id=trial.id)] == [20, 40, 50]


def test_trials_log_at_the_debug_level_if_the_config_enables_it(store: TrackingStore, new_experiment: Submit) -> None:
    body = """
def on_batch(self, batch):
    import logging
    logging.debug(f"batch {batch}")
"""
    experiment = new_experiment(body, debug=True)
    assert run(store, experiment) is State.COMPLETED
    assert "batch 3" in log_of(store, experiment)


def test_the_load_of_the_host_is_recorded_if_the_config_enables_it(
    store: TrackingStore, new_experiment: Submit
) -> None:
    body = """
def on_batch(self, batch):
    import threading
    assert "det-profiler" in [thread.name for thread in threading.enumerate()]
"""
    experiment = new_experiment(body, profiling={"enabled": True})
    assert run(store, experiment) is State.COMPLETED


KILLED_ONCE = """
def on_batch(self, batch):
    marks = Path(os.environ["MARKS"])
    for number in map(int, os.environ["KILL_AT"].split(",")):
        if batch == number and not (marks / str(number)).exists():
            (marks / str(number)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.campaign
@pytest.mark.parametrize("seed", campaign_seeds(few=1, many=50))
def test_sigkill_at_random_batches_changes_nothing(
    store: TrackingStore, new_experiment: Submit, tmp_path: Path, seed: int
) -> None:
    kill_at = sorted(random.Random(seed).sample(range(50), 3))
    marks = tmp_path / "marks"
    marks.mkdir()
    periods = {"min_validation_period": {"batches": 7}, "min_checkpoint_period": {"batches": 9}}
    calm = new_experiment(**periods)
    killed = new_experiment(
        KILLED_ONCE,
        **periods,
        environment={"environment_variables": [f"MARKS={marks}", f"KILL_AT={','.join(map(str, kill_at))}"]},
    )
    assert run(store, calm) is run(store, killed) is State.COMPLETED
    trials = the_trial(store, calm), the_trial(store, killed)
    assert trials[1].restarts == 3, kill_at
    assert history(store, trials[1].id) == history(store, trials[0].id), kill_at


ASKED_WHEN_VALIDATING = """
def evaluate(self):
    mark = Path(os.environ["MARKS"], str(self.batch))
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGTERM)
    return {"validation_loss": abs(self.weight - 1)}
"""


@pytest.mark.slow
def test_stopping_in_the_middle_of_every_validation_changes_nothing(
    store: TrackingStore, new_experiment: Submit, tmp_path: Path
) -> None:
    settings = {"min_validation_period": {"batches": 20}, "perform_initial_validation": True, "max_restarts": 0}
    calm = new_experiment(**settings)
    marks = {"environment_variables": [f"MARKS={tmp_path}"]}
    asked = new_experiment(ASKED_WHEN_VALIDATING, **settings, environment=marks)
    assert run(store, calm) is run(store, asked) is State.COMPLETED
    trials = the_trial(store, calm), the_trial(store, asked)
    assert (trials[1].run_id, trials[1].restarts) == (5, 0)  # asked at batches 0, 20, 40 and 50
    assert history(store, trials[1].id) == history(store, trials[0].id)
    assert [c.steps_completed for c in store.checkpoints(trial_id=trials[1].id)] == [20, 40, 50]


def test_a_trial_may_be_requested_to_stop_during_set_up(
    store: TrackingStore, new_experiment: Submit, tmp_path: Path
) -> None:
    experiment = new_experiment(
        f"""
def __init__(self, context):
    super().__init__(context)
    mark = Path({str(tmp_path / "mark")!r})
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGTERM)
def on_batch(self, batch):
    assert det.get_cluster_info().trial.trial_run_id > 1
""",
        max_restarts=0,
    )
    assert run(store, experiment) is State.COMPLETED
    assert the_trial(store, experiment).run_id == 2


def test_failures_count_up_to_max_restarts(store: TrackingStore, new_experiment: Submit) -> None:
    experiment = new_experiment(
        "def on_batch(self, batch):\n    if batch == 7: raise RuntimeError('boom in batch 7')", max_restarts=1
    )
    assert run(store, experiment) is State.ERROR
    trial = the_trial(store, experiment)
    assert (trial.state, trial.run_id) == (State.ERROR, 2)
    reason = "RuntimeError: boom in batch 7 (batch 7, model_def.py:7)"
    assert store.experiment(experiment.id).error == reason
    assert 'model_def.py", line' in log_of(store, experiment)
    assert [run.end_reason for run in store.runs(trial.id)] == [reason] * 2
    assert all(run.end_time is not None for run in store.runs(trial.id))


@pytest.mark.parametrize(
    ("body", "changes", "message"),
    [
        ("unreadable = vars", {"entrypoint": "model_def:Nothing"}, "has no 'Nothing'"),
        ("pass", {"entrypoint": "model_def:Path"}, "which is not a trial"),
        ("def evaluate(self): return {'other': 1}", {}, "searcher.metric is 'validation_loss'"),
        ("def evaluate(self): return {'val_loss': 1}", {}, "or change the config; did you mean 'val_loss'?"),
        ("def __init__(self, c): c.get_hparam('lr')", {"max_restarts": 0}, "there is no hyperparameter 'lr'"),
        ("def __init__(self, c): c.get_global_batch_size()", {}, "hyperparameters: {global_batch_size: 64}"),
    ],
)
def test_a_broken_trial_is_reported_in_one_line_and_not_restarted(
    store: TrackingStore, new_experiment: Submit, body: str, changes: dict[str, Any], message: str
) -> None:
    experiment = new_experiment(body, **changes)
    assert run(store, experiment) is State.ERROR
    error = store.experiment(experiment.id).error
    assert error
    assert message in error
    assert the_trial(store, experiment).run_id == 1


@pytest.mark.parametrize(
    ("body", "runs"),
    [
        ("import no_such_module", 1),
        ("raise ValueError('at import')", 2),
    ],
)
def test_a_trial_ends_at_the_second_identical_failure_before_the_first_batch(
    store: TrackingStore, new_experiment: Submit, body: str, runs: int
) -> None:
    experiment = new_experiment(body, max_restarts=3)
    assert run(store, experiment) is State.ERROR
    assert the_trial(store, experiment).run_id == runs


@pytest.mark.parametrize(
    ("saves", "changes", "runs"), [(False, {}, 2), (True, {}, 3), (False, {"restart_repeated_failures": True}, 4)]
)
def test_a_trial_ends_at_the_second_identical_failure_at_the_same_batch(
    store: TrackingStore, new_experiment: Submit, saves: bool, changes: dict[str, Any], runs: int
) -> None:
    period = {"min_checkpoint_period": {"batches": 20}} if saves else {}
    body = "def on_batch(self, batch):\n    if batch == 30: raise RuntimeError(f'broken: {self!r}')"
    experiment = new_experiment(body, max_restarts=3, **period, **changes)
    assert run(store, experiment) is State.ERROR
    assert the_trial(store, experiment).run_id == runs
    error = store.experiment(experiment.id).error
    assert re.fullmatch(r"RuntimeError: broken: <.*> \(batch 30, model_def.py:7\)", str(error))
    shown = log_of(store, experiment)
    assert shown.count("Traceback") == 1 + saves, "expected one for each checkpoint that runs failed from"
    assert ("it failed in the same way twice" in shown) is not bool(changes)


def test_a_nan_metric_is_recorded_and_never_the_best(store: TrackingStore, new_experiment: Submit) -> None:
    body = "def evaluate(self): return {'validation_loss': float('nan') if self.batch < 50 else 0.5}"
    experiment = new_experiment(body, min_validation_period={"batches": 10})
    assert run(store, experiment) is State.COMPLETED
    values = [
        m["validation_loss"] for g, _, m, _ in history(store, the_trial(store, experiment).id) if g == "validation"
    ]
    assert [str(value) for value in values] == ["nan"] * 4 + ["0.5"]
    assert store.best_validation(experiment.id, "validation_loss", smaller_is_better=True)[0] == 0.5
    assert "is NaN; it counts as the worst" in log_of(store, experiment)


def test_invalid_hyperparameters_end_the_trial_without_restart(store: TrackingStore, new_experiment: Submit) -> None:
    experiment = new_experiment("def on_batch(self, batch): raise det.InvalidHP('too deep')")
    assert run(store, experiment) is State.COMPLETED
    trial = the_trial(store, experiment)
    assert (trial.run_id, store.run(trial.id, 1).early_exit) == (1, "EXITED_REASON_INVALID_HP")


def test_a_trial_may_ask_to_stop(store: TrackingStore, new_experiment: Submit) -> None:
    experiment = new_experiment("def on_batch(self, batch):\n    if batch == 15: self.context.set_stop_requested(True)")
    assert run(store, experiment) is State.COMPLETED
    trial = the_trial(store, experiment)
    assert trial.steps_completed == 20
    assert [c.steps_completed for c in store.checkpoints(trial_id=trial.id)] == [20]


SLOW = "def on_batch(self, batch): time.sleep(0.05)"


def test_pause_between_two_reports_and_resume_change_nothing(store: TrackingStore, new_experiment: Submit) -> None:
    calm = new_experiment()
    assert run(store, calm) is State.COMPLETED
    paused = new_experiment(SLOW)
    interrupt_once(lambda: is_training(store, paused))
    assert run(store, paused) is State.PAUSED
    trial = the_trial(store, paused)
    assert trial.state is State.PAUSED
    assert run(store, paused) is State.COMPLETED
    again = the_trial(store, paused)
    assert (again.run_id, again.restarts) == (2, 0)
    assert history(store, again.id) == history(store, the_trial(store, calm).id)


def is_training(store: TrackingStore, experiment: ExperimentRecord) -> bool:
    """Return whether the experiment's trial has trained its first batch."""
    return any(trial.runner_state == TRAINING_STATE for trial in store.trials(experiment.id))


@contextmanager
def once_it_trains(
    store: TrackingStore, experiment: ExperimentRecord, act: Callable[[TrialRecord], object]
) -> Iterator[None]:
    """Call a function in another thread when the experiment's trial has trained its first batch."""

    def watch() -> None:
        wait_for(lambda: is_training(store, experiment))
        act(the_trial(store, experiment))

    thread = threading.Thread(target=watch)
    thread.start()
    yield
    thread.join()


def test_a_request_in_the_store_cancels_the_experiment(store: TrackingStore, new_experiment: Submit) -> None:
    experiment = new_experiment(SLOW)
    with once_it_trains(
        store, experiment, lambda trial: store.set_experiment_state(experiment.id, State.STOPPING_CANCELED)
    ):
        assert run(store, experiment) is State.CANCELED
    assert store.checkpoints(trial_id=the_trial(store, experiment).id)


STUCK_SECONDS = 240


def stuck(started: Path) -> str:
    """Return the code of a trial that creates a file and does not finish its first batch."""
    return f"def on_batch(self, batch):\n    Path({str(started)!r}).touch()\n    time.sleep({STUCK_SECONDS})"


def test_the_second_ctrl_c_kills(store: TrackingStore, new_experiment: Submit, tmp_path: Path) -> None:
    experiment = new_experiment(stuck(tmp_path / "started"))
    runner = ExperimentRunner(store, experiment.id)
    interrupt_once((tmp_path / "started").exists)
    interrupt_once(lambda: bool(runner.signals))
    began = time.monotonic()
    assert runner.run() is State.CANCELED
    assert time.monotonic() - began < STUCK_SECONDS / 2
    assert store.lease_holder(experiment.id) is None


def test_a_worker_that_ignores_the_request_is_killed_in_time(
    store: TrackingStore, new_experiment: Submit, tmp_path: Path
) -> None:
    experiment = new_experiment(stuck(tmp_path / "started"), preemption_timeout=1)
    interrupt_once((tmp_path / "started").exists, number=signal.SIGTERM)
    assert run(store, experiment) is State.PAUSED


def test_an_experiment_can_be_resumed_after_sigkill_of_its_runner(store: TrackingStore, new_experiment: Submit) -> None:
    calm = new_experiment(min_checkpoint_period={"batches": 5})
    assert run(store, calm) is State.COMPLETED
    experiment = new_experiment(SLOW, min_checkpoint_period={"batches": 5})
    start_detached(store, experiment.id)
    with pytest.raises(ExperimentBusy, match=f"det experiment pause {experiment.id}"):
        Lease(store, experiment.id)
    wait_for(lambda: bool(store.checkpoints(experiment_id=experiment.id)))
    holder, killed_at = store.lease_holder(experiment.id), datetime.now(timezone.utc)
    assert holder
    kill_for_good(int(holder.rsplit(":", 3)[1]))
    # The worker records its last checkpoint without a runner.
    wait_for(lambda: store.checkpoints(experiment_id=experiment.id)[-1].time > killed_at)
    assert run(store, experiment) is State.COMPLETED
    trial = the_trial(store, experiment)
    assert trial.run_id == 2
    assert history(store, trial.id) == history(store, the_trial(store, calm).id)


def submit_with_broken_storage(submit: Submit, directory: Path, **keys: Any) -> ExperimentRecord:
    """Submit an experiment whose storage becomes unusable before it runs."""
    experiment = submit(checkpoint_storage={"type": "directory", "container_path": str(directory)}, **keys)
    shutil.rmtree(directory, ignore_errors=True)
    directory.touch()
    return experiment


def test_a_detached_runner_imports_nothing_of_the_callers_directory(
    store: TrackingStore, new_experiment: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, det_home: Path
) -> None:
    """Modules in that directory must not shadow those that det imports. Later runners append to the store's own log."""
    (tmp_path / "queue.py").write_text("raise SystemExit('the module of the caller')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DET_HOME", os.path.relpath(det_home))
    experiment = submit_with_broken_storage(new_experiment, tmp_path / "checkpoints")
    for _ in range(2):
        with suppress(LaunchError):  # if the runner ends before anybody sees that it holds the experiment
            start_detached(store, experiment.id)
        wait_for(lambda: store.lease_holder(experiment.id) is None)
    assert store.experiment(experiment.id).state is State.ERROR
    log = det_home / "runners" / f"{experiment.id}-of-{store.cluster_id}.log"
    wait_for(lambda: log.read_text().count("cannot write checkpoints") == 2)


def test_two_stores_share_no_lock(store: TrackingStore, new_experiment: Submit, tmp_path: Path) -> None:
    """Otherwise trials with the same id in two stores would wait for each other."""
    experiment = new_experiment()
    with open_store(f"sqlite:///{tmp_path / 'other.db'}") as other:
        names = set()
        for each in (store, other):
            trial = each.create_trial(each.create_experiment(config={}).id, hparams={}, seed=0)
            run_of = each.start_run(trial.id, allocation_id="")
            config = parse_config(experiment.config)
            launcher = open_launcher(config)
            request = build_launch_request(
                config, trial, run_of, None, experiment=experiment, code=b"", store=each, launcher=launcher, log=print
            )
            names.add(request.key)
    assert len(names) == 2


def test_workers_of_a_runner_that_records_on_a_server_call_it_through_the_runner(
    store: TrackingStore, new_experiment: Submit
) -> None:
    experiment = new_experiment()
    trial = store.create_trial(experiment.id, hparams={}, seed=0)
    run_of, config = store.start_run(trial.id, allocation_id=""), parse_config(experiment.config)
    with served(Behaviour(store)) as url, open_store(url) as remote:
        launcher = open_launcher(config)
        request = build_launch_request(
            config, trial, run_of, None, experiment=experiment, code=b"", store=remote, launcher=launcher, log=print
        )
    assert request.info["cluster.json"]["master_url"] == "agent:"


def test_workers_do_not_outlive_their_runner(store: TrackingStore, new_experiment: Submit, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    experiment = new_experiment(
        f"def on_batch(self, batch):\n    Path({str(pid_file)!r}).write_text(str(os.getpid()))\n    time.sleep(600)"
    )
    start_detached(store, experiment.id)
    wait_for(lambda: pid_file.exists() and bool(pid_file.read_text()))
    runner = int(str(store.lease_holder(experiment.id)).rsplit(":", 3)[1])
    kill_for_good(runner)
    wait_for(lambda: not Path(f"/proc/{pid_file.read_text()}").exists())


def test_a_newer_run_shuts_an_older_worker_out(store: TrackingStore, new_experiment: Submit) -> None:
    experiment = new_experiment(SLOW, max_restarts=0)
    with once_it_trains(store, experiment, lambda trial: store.start_run(trial.id, allocation_id="of another runner")):
        assert run(store, experiment) is State.ERROR
    assert "StaleRun" in str(store.experiment(experiment.id).error)
    assert store.checkpoints(experiment_id=experiment.id) == []


def test_submit_refuses_configs_that_cannot_run(new_experiment: Submit) -> None:
    with pytest.raises(InvalidExperimentException, match="no entrypoint"):
        new_experiment(entrypoint=None)


def test_a_missing_context_directory_is_reported(
    new_experiment: Submit, context_dir: Path, store: TrackingStore
) -> None:
    config = parse_config(new_experiment().config)
    with pytest.raises(DetError, match="'/nowhere' does not exist"):
        submit_experiment(store, config, Path("/nowhere"))
    (context_dir / "big.bin").write_bytes(bytes(97 << 20))
    with pytest.raises(DetError, match=r"holds 97 MiB, the limit is 96 MiB.*\.detignore"):
        submit_experiment(store, config, context_dir)
    (context_dir / ".detignore").write_text("*.bin\n")
    submit_experiment(store, config, context_dir)


OBSERVER = """
import json, os
import det_core
def note(event):
    with open(os.environ["SEEN"], "a") as file:
        print(type(event).__name__, *(str(getattr(event, name, "")) for name in ("state", "best")), file=file)
@det_core.hookimpl
def det_experiment_started(event): note(event)
@det_core.hookimpl
def det_experiment_finished(event): note(event)
@det_core.hookimpl
def det_trial_started(event): note(event)
@det_core.hookimpl
def det_trial_finished(event): note(event)
@det_core.hookimpl
def det_metrics_reported(event): note(event)
@det_core.hookimpl
def det_checkpoint_saved(event): note(event); raise RuntimeError("an observer's bug")
"""


@pytest.mark.parametrize("storage", ["good", "bad"])
def test_observers_receive_all_events_in_order(
    store: TrackingStore,
    new_experiment: Submit,
    plugin_site: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    storage: str,
) -> None:
    (tmp_path / "det_noting.py").write_text(OBSERVER)
    install_plugin(plugin_site, tmp_path / "det_noting.py", monkeypatch)
    seen = tmp_path / "seen"
    monkeypatch.setenv("SEEN", str(seen))
    directory = tmp_path / storage
    if storage == "good":
        block = {"type": "directory", "container_path": str(directory)}
        experiment = new_experiment(scheduling_unit=50, checkpoint_storage=block)
    else:
        experiment = submit_with_broken_storage(new_experiment, directory, scheduling_unit=50)
    if storage == "good":
        assert run(store, experiment) is State.COMPLETED
    else:
        with pytest.raises(DetError):
            run(store, experiment)
    trained = ["TrialStarted", "MetricsReported", "MetricsReported", "CheckpointSaved"]
    best = store.best_validation(experiment.id, "validation_loss", smaller_is_better=True)
    ending = f"COMPLETED {best[0]}" if best else "ERROR None"
    assert [line.strip() for line in seen.read_text().splitlines()] == [
        "ExperimentStarted",
        *([*trained, f"TrialFinished {ending}"] if storage == "good" else []),
        f"ExperimentFinished {ending}",
    ]


def test_a_full_disk_pauses_a_trial_and_leaves_no_visible_checkpoint(
    store: TrackingStore, new_experiment: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, Count.DISK_SECONDS, 0)
    with small_disk(tmp_path / "disk", size=1 << 16) as disk:
        storage = {"type": "directory", "container_path": str(disk)}
        ballast = fill_disk(disk, left=1 << 15)
        body = (
            f"if Path({str(ballast)!r}).exists():\n"
            f"    def on_batch(self, batch): batch or os.system('cat /dev/zero 2> /dev/null > {ballast}')"
        )
        experiment = new_experiment(body, checkpoint_storage=storage, max_restarts=0)
        assert run(store, experiment) is State.PAUSED
        error = store.experiment(experiment.id).error
        assert re.search(rf"DiskError: the disk of {disk}\S* \(0 MB free\) has no space left", str(error))
        assert not list(disk.rglob("metadata.json"))
        rows = store.checkpoints(experiment_id=experiment.id, states=list(CheckpointState))
        assert {row.state for row in rows} == {CheckpointState.DELETED}
        trial = the_trial(store, experiment)
        assert (trial.run_id, trial.restarts) == (2, 0)
        ballast.unlink()
        assert run(store, experiment) is State.COMPLETED


def test_a_trial_whose_orphans_live_on_waits_for_a_resume(
    store: TrackingStore, new_experiment: Submit, slots_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_core.launch.trial_lock._LOCK_SECONDS", 0.2)
    monkeypatch.setitem(LIMITS, Count.LAUNCH_SECONDS, 0)
    slots_directory.mkdir(mode=0o700)
    lock = slots_directory / f"lock-{store.cluster_id}-exp-1-trial-1"
    searcher = {"name": "random", "metric": "validation_loss", "max_trials": 2, "max_length": {"batches": 10}}
    experiment = new_experiment(searcher=searcher)
    with lock.open("w") as orphan:
        fcntl.flock(orphan, fcntl.LOCK_EX)
        assert run(store, experiment) is State.PAUSED
    waiting, other = store.trials(experiment.id)
    assert (waiting.state, waiting.restarts, other.steps_completed) == (State.PAUSED, 0, 10)
    assert "fuser -v" in str(store.experiment(experiment.id).error)
    log = [line.log for line in store.logs(waiting.id)]
    assert [line.partition(": ")[0] for line in log[1:3]] == [
        "not started yet, trying again",
        "run 1 of trial 1 could not be started",
    ]
    assert waiting.run_id == 2  # it has tried again after the other trial
    assert run(store, experiment) is State.COMPLETED
    assert [(trial.steps_completed, trial.restarts) for trial in store.trials(experiment.id)] == [(10, 0), (10, 0)]
    assert store.experiment(experiment.id).error is None


def test_a_trial_that_waits_for_orphans_can_be_stopped(
    store: TrackingStore, new_experiment: Submit, slots_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_core.launch.trial_lock._LOCK_SECONDS", 0.2)
    slots_directory.mkdir(mode=0o700)
    lock = slots_directory / f"lock-{store.cluster_id}-exp-1-trial-1"
    experiment = new_experiment()
    interrupt_once(lambda: any(len(store.logs(trial.id)) in (2, 3) for trial in store.trials(experiment.id)))
    with lock.open("w") as orphan:
        fcntl.flock(orphan, fcntl.LOCK_EX)
        assert run(store, experiment) is State.PAUSED
    assert the_trial(store, experiment).state is State.PAUSED
    assert store.experiment(experiment.id).error is None


def test_a_trial_trains_with_a_long_temporary_directory(
    store: TrackingStore, new_experiment: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert run(store, new_experiment()) is State.COMPLETED


def test_info_files_reach_the_worker(store: TrackingStore, new_experiment: Submit, tmp_path: Path) -> None:
    out = tmp_path / "info.json"
    body = (
        "def __init__(self, context):\n    super().__init__(context)\n    import json\n"
        f"    info = det.get_cluster_info()\n    Path({str(out)!r}).write_text(json.dumps("
        "[info.trial.hparams, info.trial.trial_run_id, info.slot_ids, os.environ['COLOR']]))"
    )
    experiment = new_experiment(body, hyperparameters={"lr": 0.1}, environment={"environment_variables": ["COLOR=red"]})
    assert run(store, experiment) is State.COMPLETED
    assert json.loads(out.read_text()) == [{"lr": 0.1}, 1, [0], "red"]
