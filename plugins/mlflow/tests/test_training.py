"""Experiments of det that are recorded on the server, with their runners and workers."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from det_core.cli import main

from .server import MLflowServer, Run, running_mlflow

pytestmark = pytest.mark.integration

SCRIPT = """
import time
from pathlib import Path
import det_core as det

with det.core.init() as core:
    state = core.info.latest_checkpoint
    step = 0
    if state:
        with core.checkpoint.restore_path(state) as path:
            step = int((path / "step").read_text())
    hparams = core.info.trial.hparams
    began, ticks = time.monotonic(), step
    while step < {steps} and not core.preempt.should_preempt():
        step += 1
        core.train.report_training_metrics(steps_completed=step, metrics={{"loss": hparams["lr"] / step, "note": "x"}})
        if step == {wait_at}:
            Path({directory!r}, "waits").touch()
            while not Path({directory!r}, "go").exists() and not core.preempt.should_preempt():
                time.sleep(0.1)
                ticks += 1
                core.train.report_metrics("waiting", steps_completed=ticks, metrics={{"ticks": ticks}})
    Path({directory!r}, "seconds").write_text(str(time.monotonic() - began))
    with core.checkpoint.store_path({{"steps_completed": step}}) as (path, _):
        (path / "step").write_text(str(step))
    if not core.preempt.should_preempt():
        core.train.report_validation_metrics(steps_completed=step, metrics={{"loss": hparams["lr"]}})
"""


class Training:
    """Experiment whose script stops after some steps until it is told to go on."""

    def __init__(self, directory: Path, address: str, *, steps: int = 20, wait_at: int = 0, **keys: Any) -> None:
        self._directory = directory
        self.name = f"lines-{uuid.uuid4().hex[:8]}"
        options = {"tracking_uri": address, **keys.pop("options", {})}
        config = {
            "name": self.name,
            "entrypoint": "python3 train.py",
            "hyperparameters": {"lr": 0.5},
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": steps}},
            "checkpoint_storage": {"type": "directory", "container_path": str(directory / "checkpoints")},
            "resources": {"slots_per_trial": 0},
            "max_restarts": 0,
            "observers": {"mlflow": options},
            **keys,
        }
        (directory / "code").mkdir()
        (directory / "code/train.py").write_text(SCRIPT.format(steps=steps, wait_at=wait_at, directory=str(directory)))
        (directory / "config.yaml").write_text(yaml.safe_dump(config))

    def det(self, *arguments: str) -> str:
        """Run a command in this process, and return what was printed."""
        output = io.StringIO()
        with redirect_stdout(output), redirect_stderr(output):
            code = main([*arguments])
        assert code == 0, output.getvalue()
        return output.getvalue()

    def run(self) -> str:
        """Train to the end, and return what was printed."""
        return self.det("run", *self._arguments)

    @contextmanager
    def waiting(self) -> Iterator[subprocess.Popen[str]]:
        """Train in the background. The block begins when the script waits, and the script goes on after it."""
        command = [sys.executable, "-m", "det_core.cli", "run", *self._arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                wait_for(lambda: (self._directory / "waits").exists() or process.poll() is not None)
                assert process.poll() is None, process.communicate()[0]
                yield process
                (self._directory / "go").touch()
                self.output = process.communicate(timeout=200)[0]
            finally:
                process.kill()

    @property
    def seconds(self) -> float:
        """Duration of the training loop."""
        return float((self._directory / "seconds").read_text())

    @property
    def _arguments(self) -> list[str]:
        return [str(self._directory / "config.yaml"), str(self._directory / "code")]


def wait_for(condition: Callable[[], Any], limit: float = 120) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)


def steps_of(run: Run) -> list[int]:
    return [step for step, _ in run.history("training/loss")]


def test_a_search_is_recorded_completely(server: MLflowServer, tmp_path: Path) -> None:
    training = Training(
        tmp_path,
        server.address,
        hyperparameters={"lr": {"type": "categorical", "vals": [0.1, 0.2]}},
        searcher={"name": "grid", "metric": "loss", "max_length": {"batches": 20}, "max_concurrent_trials": 2},
        options={"checkpoints": "copy", "tags": {"team": "vision"}, "token": "not-a-real-token"},
    )
    training.run()
    runs = {run.name: run for run in server.runs(training.name)}
    parent = runs.pop(training.name)
    assert parent.status == "FINISHED"
    config = json.loads(parent.read("det/config.json"))
    assert config["hyperparameters"]["lr"]["vals"] == [0.1, 0.2]
    assert "not-a-real-token" not in json.dumps(config)
    assert sorted(run.parameters["lr"] for run in runs.values()) == ["0.1", "0.2"]
    for run in runs.values():
        assert (run.status, run.tags["mlflow.parentRunId"], run.tags["team"]) == ("FINISHED", parent.id, "vision")
        assert steps_of(run) == list(range(1, 21))
        assert run.metrics["validation/loss"] == float(run.parameters["lr"])
        (checkpoint,) = run.checkpoints
        assert run.read(f"checkpoints/{checkpoint}/step") == b"20"
        assert (tmp_path / "checkpoints" / checkpoint / "step").exists()


def test_a_resumed_trial_continues_its_run(server: MLflowServer, tmp_path: Path) -> None:
    training = Training(tmp_path, server.address, wait_at=7)
    with training.waiting():
        wait_for(lambda: server.runs(training.name))
        training.det("experiment", "pause", "1")
        wait_for(lambda: server.runs(training.name)[0].status == "SCHEDULED")
    (paused,) = server.runs(training.name)
    assert paused.tags["det.state"] == "PAUSED"
    training.det("experiment", "resume", "1")
    wait_for(lambda: server.runs(training.name)[0].status == "FINISHED")
    (run,) = server.runs(training.name)
    assert (run.id, run.status, run.tags["det.run_id"]) == (paused.id, "FINISHED", "2")
    assert steps_of(run) == list(range(1, 21))
    assert run.metrics["validation/loss"] == 0.5


@pytest.mark.slow
def test_a_frozen_server_does_not_delay_training_and_losses_are_logged(server: MLflowServer, tmp_path: Path) -> None:
    training = Training(tmp_path, server.address, wait_at=5, steps=200, options={"timeout": 1})
    with server.frozen(), training.waiting():
        (tmp_path / "go").touch()
        wait_for(lambda: (tmp_path / "seconds").exists())
        wait_for(lambda: "COMPLETED" in training.det("experiment", "list"))
    assert training.seconds < 60, "each request would take a second"
    logs = training.det("trial", "logs", "1") + training.output
    assert "items of trial 1 are not in MLflow" in logs
    assert "timed out" in logs


@pytest.mark.soak
def test_a_server_that_is_killed_and_returns_receives_everything(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with running_mlflow(tmp_path / "data", start=False) as own:
        training = Training(tmp_path, own.address, wait_at=5)
        with training.waiting():
            own.start()
            wait_for(lambda: own.runs(training.name))
            own.kill()
            own.start()
        (run,) = own.runs(training.name)
        assert (run.status, steps_of(run)) == ("FINISHED", list(range(1, 21)))
