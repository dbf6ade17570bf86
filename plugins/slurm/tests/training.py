"""Experiments for the tests, whose result shows whether a batch was lost or trained twice."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from det_core.config import parse_config
from det_core.interfaces.records import State, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, submit_experiment

SECONDS = 60.0
STEPS = 8
SCRIPT = """
import json, os, time
import det_core as det

info = det.get_cluster_info()
with det.core.init() as core_context:
    step, value = 0, 0.0
    if info.latest_checkpoint:
        with core_context.checkpoint.restore_path(info.latest_checkpoint) as path:
            step, value = json.loads((path / "state").read_text())

    def save():
        with core_context.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "state").write_text(json.dumps([step, value]))

    while step < 8:
        step, value = step + 1, value / 2 + step
        core_context.train.report_training_metrics(steps_completed=step, metrics={"value": value})
        if step % 2 == 0:
            save()
        if step == 5 and info.trial.trial_run_id == 1:
            print("waiting as", os.getpid(), flush=True)
        while step == 5 and info.trial.trial_run_id == 1 and not os.path.exists(info.trial.hparams["release"]):
            if core_context.preempt.should_preempt():
                break
            time.sleep(0.02)
        if core_context.preempt.should_preempt():
            save()
            raise SystemExit
    core_context.train.report_validation_metrics(steps_completed=step, metrics={"loss": value})
"""
"""Script that waits in its first run after 5 of 8 batches, until a file exists or its preemption is requested."""


def undisturbed_values() -> list[float]:
    """Return the metric of each batch."""
    values = [0.0]
    for step in range(STEPS):
        values.append(values[-1] / 2 + step)
    return values[1:]


class Experiment:
    """Experiment that trains `SCRIPT` on Slurm.

    Args:
        store: the tracking store.
        directory: directory for its files.
        launcher: options of the launcher.
        keys: further keys of the config.
    """

    def __init__(self, store: TrackingStore, directory: Path, launcher: dict[str, Any] | None = None, **keys: Any):
        self.store = store
        self.release = directory / "release"
        self.code = code = directory / "code"
        code.mkdir()
        (code / "main.py").write_text(SCRIPT)
        config = {
            "entrypoint": "python3 main.py",
            "hyperparameters": {"release": str(self.release)},
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": STEPS}},
            "launcher": {"type": "slurm", **(launcher or {})},
            "checkpoint_storage": {"type": "directory", "container_path": str(directory / "checkpoints")},
            **keys,
        }
        self.id = submit_experiment(store, parse_config(config), code).id

    @property
    def trial(self) -> TrialRecord:
        """The only trial."""
        return self.store.trials(self.id)[0]

    def run(self, disturb: Callable[[], object] = lambda: None) -> State:
        """Run the experiment here, and disturb it meanwhile in a thread."""
        problems: list[BaseException] = []

        def act() -> None:
            try:
                disturb()
            except BaseException as problem:  # noqa: BLE001  (raised below)
                problems.append(problem)
                self.store.set_experiment_state(self.id, State.STOPPING_KILLED)

        thread = threading.Thread(target=act)
        thread.start()
        state = ExperimentRunner(self.store, self.id).run()
        thread.join(SECONDS)
        if problems:
            raise AssertionError(f"{problems[0]!r}; {self.describe()}") from problems[0]
        return state

    def wait_for_worker(self) -> psutil.Process:
        """Wait until the script waits, and return its process."""
        (line,) = self.wait_for(lambda: [line for line in self.lines() if line.startswith("waiting as ")], "worker")
        return psutil.Process(int(line.split()[-1]))

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until a condition is true, and return its value."""
        deadline = time.monotonic() + SECONDS
        while not (value := condition()):
            assert time.monotonic() < deadline, f"no {what}; {self.describe()}"
            time.sleep(0.05)
        return value

    def wait_for_placement(self, pattern: str) -> str:
        """Wait until the displayed state of the trial matches a pattern, and return it."""
        found = self.wait_for(lambda: [one for one in self._placements() if re.search(pattern, one)], pattern)
        return str(found[0])

    def lines(self) -> list[str]:
        """Return the lines of the trial's log so far."""
        return [line.log for trial in self.store.trials(self.id) for line in self.store.logs(trial.id)]

    def describe(self) -> str:
        """Return what is known, for errors."""
        record = self.store.experiment(self.id)
        return f"{record.state} {record.error!r} {self._placements()}; log:\n" + "\n".join(self.lines())

    def require_undisturbed_result(self) -> None:
        """Fail unless each batch was trained once, with the metrics of a run without disturbances."""
        reports = self.store.metrics(self.trial.id, group="training")
        found = [(report.steps_completed, report.metrics["value"]) for report in reports]
        assert found == list(enumerate(undisturbed_values(), 1)), self.describe()
        assert self.store.experiment(self.id).state is State.COMPLETED, self.describe()

    def _placements(self) -> list[str]:
        return [trial.placement for trial in self.store.trials(self.id)]
