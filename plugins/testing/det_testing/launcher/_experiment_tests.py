"""Tests of experiments, from their submission to their end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_core.config import parse_config
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, submit_experiment
from det_core.tracking import open_store
from det_core.tracking.remote import answer_call
from det_testing.launcher.launcher_suite import Launch, LauncherSuite

_TRAIN = """
import os, signal, time
import det_core as det
info = det.get_cluster_info()
run, step = info.trial.trial_run_id, 0
with det.core.init() as core_context:
    if info.latest_checkpoint:
        step = core_context.checkpoint.get_metadata(info.latest_checkpoint)["steps_completed"]
    print(f"run {run} starts at {step}")
    while step < 6:
        step += 1
        core_context.train.report_training_metrics(steps_completed=step, metrics={"loss": 1.0 / step})
        with core_context.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "state").write_text(str(step))
        if run == 1 and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        while run == 2 and step == 4 and not core_context.preempt.should_preempt():
            time.sleep(0.01)
        if core_context.preempt.should_preempt():
            raise SystemExit
    core_context.train.report_validation_metrics(steps_completed=step, metrics={"loss": 0.5})
"""
_READ_TRIAL = """
from det_core.tracking import open_store
with open_store("agent:") as store:
    report(store.trial({trial_id}).seed)
"""


class LaunchedExperimentTests(LauncherSuite):
    """Tests that the runner and the launcher work together."""

    @pytest.fixture
    def store(self, home: Path) -> Iterator[TrackingStore]:
        """Return the tracking store in ``DET_HOME``."""
        with open_store() as store:
            yield store

    def test_an_experiment_survives_a_crash_and_a_pause(self, store: TrackingStore, tmp_path: Path) -> None:
        """A worker is killed, the experiment is paused and resumed, and no step is lost or trained twice."""
        context_dir = tmp_path / "code"
        context_dir.mkdir()
        (context_dir / "main.py").write_text(_TRAIN, encoding="utf-8")
        storage = {"type": "directory", "container_path": str(tmp_path / "checkpoints"), "save_trial_latest": 10}
        config = self.experiment_config(checkpoint_storage=storage, max_restarts=1)
        experiment = submit_experiment(store, parse_config(config), context_dir)

        def pause() -> None:
            end = time.monotonic() + self.limit
            while time.monotonic() < end:
                if [trial for trial in store.trials(experiment.id) if trial.run_id == 2 and trial.steps_completed == 4]:
                    store.set_experiment_state(experiment.id, State.PAUSED)
                    return
                time.sleep(0.05)

        thread = threading.Thread(target=pause, daemon=True)
        thread.start()
        first = ExperimentRunner(store, experiment.id).run()
        thread.join()
        (trial,) = store.trials(experiment.id)
        told = _describe(store, experiment.id)
        assert first is State.PAUSED, f"expected that the experiment is paused by the test; {told}"
        assert (trial.run_id, trial.steps_completed) == (2, 4), f"expected that run 2 stops at batch 4; {told}"
        second = ExperimentRunner(store, experiment.id).run()
        (trial,) = store.trials(experiment.id)
        told = _describe(store, experiment.id)
        assert second is trial.state is State.COMPLETED, f"expected that the resumed experiment completes; {told}"
        assert (trial.run_id, trial.restarts) == (3, 1), f"expected three runs and one restart; {told}"
        steps = [report.steps_completed for report in store.metrics(trial.id, group="training")]
        assert steps == [1, 2, 3, 4, 5, 6], told
        starts = [line.log for line in store.logs(trial.id) if line.log.startswith("run ") and "starts at" in line.log]
        assert starts == ["run 1 starts at 0", "run 2 starts at 2", "run 3 starts at 4"], told

    def test_calls_reach_the_tracking_store_of_the_runner(self, launch: Launch, store: TrackingStore) -> None:
        """The runner writes what workers report, and workers on other hosts have no access to the store."""
        experiment = store.create_experiment(config=self.experiment_config())
        trial = store.create_trial(experiment.id, hparams={}, seed=4711)
        one = launch(_READ_TRIAL.format(trial_id=trial.id), call=lambda method, body: answer_call(store, method, body))
        one.require_code()
        assert one.report() == 4711


def _describe(store: TrackingStore, experiment_id: int) -> str:
    """Return what is known about an experiment with one trial, for errors."""
    experiment, (trial,) = store.experiment(experiment_id), store.trials(experiment_id)
    lines = "\n".join(line.log for line in store.logs(trial.id))
    return (
        f"experiment {experiment.state.value} with error {experiment.error!r}, trial {trial.state.value} in run "
        f"{trial.run_id} at batch {trial.steps_completed} after {trial.restarts} restarts; log of the trial:\n{lines}"
    )
