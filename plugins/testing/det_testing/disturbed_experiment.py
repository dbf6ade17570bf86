"""Experiments on an engine that tests disturb, and whose result shows whether a batch was lost or trained twice."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from det_core.config import parse_config
from det_core.interfaces.records import State, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner, submit_experiment

SECONDS = 240.0
"""Time limit of each wait. Slurm starts a job again up to two minutes after it was queued again."""
_STEPS = 8
_SCRIPT = f"""
import json, os, time
import det_core as det

info = det.get_cluster_info()
with det.core.init() as core_context:
    step, value = 0, 0.0
    if info.latest_checkpoint:
        with core_context.checkpoint.restore_path(info.latest_checkpoint) as path:
            step, value = json.loads((path / "state").read_text())

    def save():
        with core_context.checkpoint.store_path({{"steps_completed": step}}) as (path, _):
            (path / "state").write_text(json.dumps([step, value]))

    while step < {_STEPS}:
        step, value = step + 1, value / 2 + step
        core_context.train.report_training_metrics(steps_completed=step, metrics={{"value": value}})
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
    core_context.train.report_validation_metrics(steps_completed=step, metrics={{"loss": value}})
"""
_RUNNER = """
import sys
from det_core.runner import ExperimentRunner
from det_core.tracking import open_store
with open_store() as store:
    ExperimentRunner(store, int(sys.argv[1])).run()
"""
_GUARD = "_guard.py"
PARTS: Mapping[str, tuple[str, int]] = {
    "worker": ("main.py", 0),
    "shell": ("/bin/sh", 0),
    "inner guard": (_GUARD, 0),
    "outer guard": (_GUARD, 1),
    "agent": ("agent_program", 0),
}
"""Part of the command line of each process of a node, and the number of such processes that are below it."""


class DisturbedExperiment:
    """Experiment with one trial of 8 batches, which waits in its first run after batch 5.

    The trial goes on when the file `release` exists, or saves a checkpoint and stops when its preemption is requested.

    Args:
        store: the tracking store.
        directory: directory for its files.
        launcher: the block ``launcher`` of its config.
        keys: further keys of the config.
    """

    def __init__(self, store: TrackingStore, directory: Path, launcher: Mapping[str, Any], **keys: Any) -> None:
        self.store = store
        self.release = directory / "release"
        """File on which the trial waits."""
        self.code = code = directory / "code"
        """Directory with the code."""
        code.mkdir()
        (code / "main.py").write_text(_SCRIPT, encoding="utf-8")
        config = {
            "entrypoint": "python3 main.py",
            "hyperparameters": {"release": str(self.release)},
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": _STEPS}},
            "launcher": dict(launcher),
            "checkpoint_storage": {"type": "directory", "container_path": str(directory / "checkpoints")},
            **keys,
        }
        self.id = submit_experiment(store, parse_config(config), code).id
        """Id of the experiment."""

    @property
    def trial(self) -> TrialRecord:
        """The only trial."""
        return self.store.trials(self.id)[0]

    @property
    def error(self) -> str:
        """The error of the experiment, or ""."""
        return self.store.experiment(self.id).error or ""

    def run(self, disturb: Callable[[], object] = lambda: None) -> State:
        """Run the experiment in this process, and call a function in a thread during the run.

        Raises:
            AssertionError: the function failed.
        """
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

    def start_runner(self) -> subprocess.Popen[bytes]:
        """Start a process that runs the experiment."""
        return subprocess.Popen([sys.executable, "-c", _RUNNER, str(self.id)], stdin=subprocess.DEVNULL)

    def wait_for_worker(self) -> psutil.Process:
        """Wait until the trial waits, and return the process of its worker."""
        (line,) = self.wait_for(lambda: [line for line in self.lines() if line.startswith("waiting as ")], "worker")
        return psutil.Process(int(line.split()[-1]))

    def wait_for_placement(self, pattern: str) -> str:
        """Wait until the displayed state of the trial matches a pattern, and return it."""
        found = self.wait_for(lambda: [one for one in self._placements() if re.search(pattern, one)], pattern)
        return str(found[0])

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until a condition is true, and return its value.

        Raises:
            AssertionError: it was not true in time.
        """
        deadline = time.monotonic() + SECONDS
        while not (value := condition()):
            assert time.monotonic() < deadline, f"no {what}; {self.describe()}"
            time.sleep(0.05)
        return value

    def lines(self) -> list[str]:
        """Return the lines of the trial's log so far."""
        return [line.log for trial in self.store.trials(self.id) for line in self.store.logs(trial.id)]

    def describe(self) -> str:
        """Return what is known, for errors."""
        state = self.store.experiment(self.id).state
        return f"{state} {self.error!r} {self._placements()}; log:\n" + "\n".join(self.lines())

    def require_undisturbed_result(self, *, restarts: int | None = None, interruptions: int | None = None) -> None:
        """Fail unless each batch was trained once, with the metrics of a run without disturbances.

        Args:
            restarts: number of restarts, if it matters.
            interruptions: number of interruptions, if it matters.

        Raises:
            AssertionError: the experiment has another result, or has not completed.
        """
        values = [0.0]
        for step in range(_STEPS):
            values.append(values[-1] / 2 + step)
        reports = self.store.metrics(self.trial.id, group="training")
        found = [(report.steps_completed, report.metrics["value"]) for report in reports]
        assert found == list(enumerate(values[1:], 1)), self.describe()
        assert self.store.experiment(self.id).state is State.COMPLETED, self.describe()
        for name, expected in (("restarts", restarts), ("interruptions", interruptions)):
            count = getattr(self.trial, name)
            assert expected in (None, count), f"{count} {name}, expected {expected}; {self.describe()}"

    def _placements(self) -> list[str]:
        return [trial.placement for trial in self.store.trials(self.id)]


def run_experiment(store: TrackingStore, config: Mapping[str, Any], context_dir: Path) -> Sequence[TrialRecord]:
    """Run an experiment to its end, and return its trials.

    Args:
        store: the tracking store.
        config: the config.
        context_dir: directory with the code.

    Raises:
        AssertionError: the experiment did not complete.
    """
    experiment = submit_experiment(store, parse_config(dict(config)), context_dir)
    state = ExperimentRunner(store, experiment.id).run()
    logs = "\n".join(line.log for trial in store.trials(experiment.id) for line in store.logs(trial.id))
    assert state is State.COMPLETED, f"{store.experiment(experiment.id).error}\n{logs}"
    return store.trials(experiment.id)


def find_ancestor(worker: psutil.Process, text: str, index: int = 0) -> psutil.Process:
    """Return a worker, or the process above it whose command line contains a text.

    Args:
        worker: the worker.
        text: a part of the command line.
        index: number of such processes that are below.
    """
    lines = [(one, " ".join(one.cmdline()).partition("\0")[0]) for one in (worker, *worker.parents())]
    return [one for one, line in lines if text in line and (_GUARD in line) == (text == _GUARD)][index]


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
