"""Experiments that the tests disturb."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from det_testing.disturbed_experiment import DisturbedExperiment

from det_core.interfaces.tracking import TrackingStore

_RUNNER = """
import sys
from det_core.runner import ExperimentRunner
from det_core.tracking import open_store
with open_store() as store:
    ExperimentRunner(store, int(sys.argv[1])).run()
"""


def start_runner(experiment_id: int) -> subprocess.Popen[bytes]:
    """Start a process that runs an experiment."""
    return subprocess.Popen([sys.executable, "-c", _RUNNER, str(experiment_id)], stdin=subprocess.DEVNULL)


def make_experiment(
    store: TrackingStore, directory: Path, options: Any, *, environment: Any, **keys: Any
) -> DisturbedExperiment:
    """Return an experiment with one trial, which waits in its first run after batch 5.

    Args:
        store: the tracking store.
        directory: directory for its files.
        options: options of the launcher.
        environment: the block ``environment``.
        keys: further keys of the config.
    """
    launcher = {"type": "kubernetes", **dict(options)}
    return DisturbedExperiment(store, directory, launcher, environment=dict(environment), **keys)


def wait_until_it_trains(experiment: DisturbedExperiment) -> None:
    """Wait until the trial waits. Its process has another id in the pod than here."""
    experiment.wait_for(lambda: any(line.startswith("waiting as ") for line in experiment.lines()), "worker")


def run_end(experiment: DisturbedExperiment, run: int = 1) -> str:
    """Return the line about the end of a run."""
    (line,) = [line for line in experiment.lines() if re.match(rf"run {run} of trial \d+ (exited|was)", line)]
    return line
