"""The examples of the Core API run as their README says."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_core.cli import main
from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

from .waiting import wait_for

pytestmark = pytest.mark.integration

DIRECTORY = Path(__file__).parent.parent / "examples" / "core_api"
STEPS = ["1_start", "2_metrics", "3_checkpoints", "4_search"]
BIN = Path(sys.executable).parent
ACCURACY = 0.8  # minimum of this model at learning rates from 0.01 to 1; guessing gives 0.1


@pytest.fixture
def store(det_home: Path) -> Iterator[TrackingStore]:
    pytest.importorskip("sklearn")
    with open_store() as opened:
        yield opened


def run(*command: str | Path) -> str:
    result = subprocess.run([*command], cwd=DIRECTORY, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def the_trial(store: TrackingStore) -> Any:
    (experiment,) = store.experiments()
    (trial,) = store.trials(experiment.id)
    assert (experiment.state, trial.state) == (State.COMPLETED, State.COMPLETED)
    return trial


def history(store: TrackingStore, trial_id: int) -> list[tuple[str, int, Any]]:
    return [(report.group, report.steps_completed, report.metrics) for report in store.metrics(trial_id)]


def check(store: TrackingStore, step: str, trial: Any) -> None:
    if step == "1_start":
        assert trial.runner_state == "epoch 10 of 10"
        return
    assert trial.steps_completed >= 1
    best = store.best_validation(trial.experiment_id, "accuracy", smaller_is_better=False)
    assert best
    assert best[0] > ACCURACY
    checkpoints = store.checkpoints(trial_id=trial.id)
    assert bool(checkpoints) is (step not in ("1_start", "2_metrics"))
    operation = store.searcher_operation(trial.id)
    assert (step == "4_search") is bool(operation and operation.completed)


def test_scripts_fit_on_a_screen() -> None:
    assert [path.name for path in DIRECTORY.glob("*.py") if len(path.read_text().splitlines()) > 65] == []


@pytest.mark.parametrize("step", STEPS)
def test_a_step_runs_by_itself(store: TrackingStore, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DIRECTORY)
    runpy.run_path(str(DIRECTORY / f"{step}.py"), run_name="__main__")
    if step == "4_search":  # one epoch, because no config asks for more
        assert the_trial(store).steps_completed == 1
    else:
        check(store, step, the_trial(store))


def test_an_interrupted_step_continues(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(DIRECTORY)
    import digits  # type: ignore[import-not-found]

    class Interrupted(digits.Digits):  # type: ignore[misc]
        def train_epoch(self, epoch: int) -> float:
            if epoch == 4:
                signal.raise_signal(signal.SIGINT)
            return float(super().train_epoch(epoch))

    step = str(DIRECTORY / "3_checkpoints.py")
    runpy.run_path(step, run_name="__main__")
    with monkeypatch.context() as patch:
        patch.setattr(digits, "Digits", Interrupted)
        runpy.run_path(step, run_name="__main__")
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith("det:   to continue from the latest checkpoint: DET_RESUME=2 ")
    )
    monkeypatch.setenv("DET_RESUME", "2")
    runpy.run_path(step, run_name="__main__")
    assert "continuing after epoch 4" in capsys.readouterr().out
    calm, continued = store.trials(1)[0], store.trials(2)[0]
    assert (continued.state, continued.run_id) == (State.COMPLETED, 2)
    assert history(store, continued.id) == history(store, calm.id)


def test_the_last_step_runs_as_an_experiment(store: TrackingStore) -> None:
    """The third step runs as an experiment below."""
    assert main(["run", str(DIRECTORY / "4_search.yaml")]) == 0
    trial = the_trial(store)
    check(store, "4_search", trial)
    assert trial.steps_completed == 10
    assert 0.01 <= trial.hparams["lr"] <= 1


def training_process(script: str, home: Path) -> int | None:
    """Return the pid of the Python process that runs the script with this DET_HOME, or None if there is none."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words, environ = (path / "cmdline").read_bytes().split(b"\0"), (path / "environ").read_bytes()
        except OSError:
            continue
        if words[:2] == [b"python3", script.encode()] and f"DET_HOME={home}".encode() in environ:
            return int(path.name)
    return None


@pytest.mark.slow
def test_checkpoints_and_resume_change_nothing(store: TrackingStore, det_home: Path) -> None:
    run(BIN / "det", "run", "3_checkpoints.yaml")
    calm = the_trial(store)
    check(store, "3_checkpoints", calm)
    for trial_id, number in ((calm.id + 1, signal.SIGKILL), (calm.id + 2, signal.SIGTERM)):
        command = [BIN / "det", "run", "3_checkpoints.yaml"]
        interrupted = subprocess.Popen(command, cwd=DIRECTORY, stdout=subprocess.DEVNULL)
        pid = wait_for(lambda: training_process("3_checkpoints.py", det_home))
        wait_for(lambda trial_id=trial_id: len(store.checkpoints(trial_id=trial_id)) >= 2)
        os.kill(pid, number)
        assert interrupted.wait(100) == 0
        trial = store.trial(trial_id)
        restarts = int(number is signal.SIGKILL)
        assert (trial.state, trial.run_id, trial.restarts) == (State.COMPLETED, 2, restarts), (
            "the trial ended before the signal"
        )
        assert any("continuing after epoch" in line.log for line in store.logs(trial_id))
        assert history(store, trial_id) == history(store, calm.id)


@pytest.mark.slow
def test_two_processes_train_under_torchrun(store: TrackingStore) -> None:
    pytest.importorskip("torch")
    run(BIN / "det", "run", "distributed.yaml")
    trial = the_trial(store)
    assert trial.steps_completed == 5
    best = store.best_validation(trial.experiment_id, "accuracy", smaller_is_better=False)
    assert best
    assert best[0] > ACCURACY
    last = store.checkpoints(trial_id=trial.id)[-1]
    assert {"model.pt", "random_0.pt", "random_1.pt", "metadata.json"} <= last.resources.keys()
    printed = {line.rank for line in store.logs(trial.id) if line.log.startswith("epoch 5: loss")}
    assert printed == {0, 1}
