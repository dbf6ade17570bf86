"""The function `create` with classes from scripts, modules and notebooks."""

from __future__ import annotations

import builtins
import importlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import det_core
from det_core.config import ExperimentConfig, parse_config
from det_core.core._cluster_info import INFO_DIR, ClusterInfo, TrialInfo, get_cluster_info
from det_core.errors import ConfigError, DetError, ExperimentFailed, InvalidExperimentException, InvalidTrial
from det_core.experimental import Determined, ExperimentReference, create, create_trial_instance
from det_core.interfaces.records import State
from det_core.trial import Trial, TrialContext, load_trial_class

from ..waiting import wait_for

SHORT: dict[str, Any] = {
    "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 4}},
    "scheduling_unit": 2,
}
MODULE = """
from det_toy import ToyTrial

class T(ToyTrial):
    def on_batch(self, batch):
        {}
"""
SCRIPT = """
import sys
import det_core as det
import helper
from det_toy import ToyTrial

class T(ToyTrial):
    def on_batch(self, batch):
        print(f"trained by {{__name__}} {{sys.argv[1:]}} {{helper.NAME}}")

{}experiment = det.experimental.create(T, {{"searcher": {{"name": "single", "metric": "validation_loss",
        "max_length": {{"batches": 1}}}}}}, **{{"{}": {}}})
{}print("done", experiment, experiment.top_checkpoint().batch_number)
"""

Define = Callable[..., type[Trial]]


@pytest.fixture
def define(context_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Define:
    """Return a function that defines a trial class in a module: ``define("raise ValueError")``."""

    def make(on_batch: str = "pass") -> type[Trial]:
        (context_dir / "model_def.py").write_text(MODULE.format(on_batch))
        monkeypatch.syspath_prepend(context_dir)
        monkeypatch.delitem(sys.modules, "model_def", raising=False)
        importlib.invalidate_caches()
        return load_trial_class("model_def:T")

    return make


@pytest.fixture
def in_session(define: Define, monkeypatch: pytest.MonkeyPatch) -> type[Trial]:
    """Return a trial class defined as in a notebook cell."""
    trial_class = define()
    monkeypatch.setattr(trial_class, "__module__", "__main__")
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    return trial_class


@pytest.mark.integration
def test_a_class_of_a_module_trains_on_this_host(
    define: Define, context_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = create(define("print('in', __name__, __file__)"), SHORT, local=True, context_dir=str(context_dir))
    assert isinstance(experiment, ExperimentReference)
    assert (experiment.state, experiment.config["entrypoint"]) == (State.COMPLETED, "model_def:T")
    best = experiment.top_checkpoint()
    loss = best.validation["metrics"]["validationMetrics"]["validation_loss"]
    assert abs(best.load("best")["weight"] - 1) == loss
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Created experiment {experiment.id}"
    assert re.fullmatch(r"trial 1: batch 4 validation validation_loss=\S+", lines[1])
    assert any(line.startswith("in model_def ") and "det-context" in line for line in experiment.logs())


@pytest.mark.integration
def test_a_failed_experiment_is_an_error(define: Define, context_dir: Path) -> None:
    failing = define("raise ValueError('no luck')")
    with pytest.raises(ExperimentFailed, match=r"experiment 1 failed: .*no luck.*det experiment logs 1"):
        create(failing, {**SHORT, "max_restarts": 0}, local=True, context_dir=str(context_dir))


@pytest.fixture
def run_script(context_dir: Path, fork_words: list[str]) -> Callable[..., str]:
    """Return a function that runs a script in a process and returns its output."""

    def run(script: str, *arguments: str) -> str:
        command = [sys.executable, *fork_words, *script.split(), *arguments]
        done = subprocess.run(command, cwd=context_dir, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.integration
@pytest.mark.parametrize(
    ("guard", "script", "name"),
    [
        pytest.param("", "train.py", "train", id="script"),
        pytest.param('if __name__ == "__main__":\n    ', "sub/train.py", "train", id="below, guarded"),
        pytest.param("", "-m sub.train", "sub.train", id="module", marks=pytest.mark.slow),
    ],
)
def test_a_script_runs_again_in_its_workers(
    context_dir: Path, run_script: Callable[..., str], guard: str, script: str, name: str
) -> None:
    """The script gets its arguments, can import modules next to it, and runs up to the call of `create`."""
    (context_dir / "sub").mkdir()
    place = context_dir / "sub" if "sub" in script else context_dir
    (context_dir / "helper.py" if "-m" in script else place / "helper.py").write_text("NAME = 'helped'")
    (place / "train.py").write_text(SCRIPT.format(guard, "local", True, guard))
    out = run_script(script, "--flag", "value")
    assert re.fullmatch(r"done ExperimentReference\(id=1, state='COMPLETED', .*\) 1", out.splitlines()[-1])
    logs = list(Determined().get_experiment(1).logs())
    assert f"trained by {name} ['--flag', 'value'] helped\n" in logs
    assert not any("done" in line for line in logs)
    assert Determined().get_experiment(1).config["entrypoint"] == f"{name}:T"


@pytest.mark.integration
def test_ctrl_c_pauses_a_local_experiment(define: Define, context_dir: Path, fork_words: list[str]) -> None:
    define("print('batch', batch, flush=True); import time; time.sleep(0.1)")
    (context_dir / "train.py").write_text(
        "import det_core as det\nimport model_def\n"
        'searcher = {"name": "single", "metric": "m", "max_length": {"batches": 10**6}}\n'
        'long = {"searcher": searcher, "scheduling_unit": 1}\n'
        "det.experimental.create(model_def.T, long, local=True)\n"
    )
    command = [sys.executable, *fork_words, "train.py"]
    process = subprocess.Popen(command, cwd=context_dir, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: any(line == "batch 1\n" for one in Determined().list_experiments() for line in one.logs()))
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate(timeout=240)[1]
    finally:
        process.kill()
        process.wait()
    (experiment,) = Determined().list_experiments()
    assert experiment.state is State.PAUSED
    assert experiment.list_checkpoints()


@pytest.mark.integration
@pytest.mark.slow
def test_a_class_of_a_script_trains_in_the_background(context_dir: Path, run_script: Callable[..., str]) -> None:
    (context_dir / "helper.py").write_text("NAME = ''")
    (context_dir / "train.py").write_text(SCRIPT.format("", "context_dir", "'.'", "experiment.wait(timeout=90); "))
    assert re.search(r"done ExperimentReference\(id=1, .*\) 1", run_script("train.py"))


def test_loading_a_class_from_a_script_ends_the_script_at_the_call(
    context_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(context_dir)
    monkeypatch.setattr("sys.argv", ["before"])
    (context_dir / "calling.py").write_text(
        "import sys\nimport det_core as det\nfrom det_toy import ToyTrial\nbefore = list(sys.argv)\n"
        "def make():\n    class Local(ToyTrial):\n        argv = before\n    return Local\n"
        "try:\n    det.experimental.create(make(), local=True)\nexcept Exception:\n    pass\n"
        "raise SystemExit('too far')\n"
    )
    found: Any = load_trial_class("calling:Whatever", [str(context_dir / "calling.py"), "--flag"])
    assert (found.__name__, found.argv[1:]) == ("Local", ["--flag"])
    assert sys.modules.pop("calling").before == found.argv
    assert Determined().list_experiments() == []


def test_the_local_test_trains_in_this_process_and_leaves_nothing(
    define: Define, context_dir: Path, det_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[int, Path]] = []
    trial_class: Any = define()
    trial_class.on_batch = lambda self, batch: seen.append((os.getpid(), Path.cwd()))
    before = Path.cwd()
    assert create(trial_class, local=True, test=True, context_dir=str(context_dir)) is None
    assert seen == [(os.getpid(), context_dir.resolve())]
    assert (Path.cwd(), os.environ["DET_HOME"]) == (before, str(det_home))
    out = capsys.readouterr().out
    assert "The test passed: training metrics {'loss': " in out
    assert "a checkpoint of" in out
    assert not det_home.exists() or not list(det_home.rglob("*.db"))


def test_errors_of_a_local_test_propagate_unchanged(define: Define, context_dir: Path) -> None:
    broken = define("raise KeyError('mine')")
    with pytest.raises(KeyError, match="mine"):
        create(broken, local=True, test=True, context_dir=str(context_dir))
    leaving = define("raise SystemExit(3)")
    with pytest.raises(InvalidExperimentException, match=r"ended the process \(3\)"):
        create(leaving, local=True, test=True, context_dir=str(context_dir))
    wanting = {**SHORT, "searcher": SHORT["searcher"] | {"metric": "f1"}}
    for config in (wanting, {**wanting, "checkpoint_policy": "none"}):
        with pytest.raises(InvalidTrial, match="searcher.metric is 'f1'"):
            create(define(), config, local=True, test=True, context_dir=str(context_dir))


def test_training_in_this_process_without_a_searcher_needs_no_metric(in_session: Any, context_dir: Path) -> None:
    in_session.evaluate = lambda self: {"accuracy": self.weight}
    for config in (None, {"checkpoint_policy": "best"}):
        assert create(in_session, config, local=True, test=True, context_dir=str(context_dir)) is None
    experiment = create(in_session, {"scheduling_unit": 50}, local=True, context_dir=str(context_dir))
    assert experiment.state is State.COMPLETED


def test_a_class_of_a_notebook_trains_in_its_process(
    in_session: type[Trial], context_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_MASTER", "http://master:8080")  # local training does not contact it
    experiment = create(in_session, SHORT, local=True, context_dir=str(context_dir))
    assert (experiment.state, experiment.top_checkpoint().batch_number) == (State.COMPLETED, 4)
    assert "batch 4 validation" in capsys.readouterr().out


def test_a_class_of_a_notebook_cannot_train_in_other_processes(in_session: type[Trial], context_dir: Path) -> None:
    place = {"context_dir": str(context_dir)}
    with pytest.raises(InvalidExperimentException, match=r"in this interactive session.*command=\['train.py'\]"):
        create(in_session, SHORT, **place)  # type: ignore[arg-type]
    search = {"searcher": {"name": "random", "metric": "m", "max_trials": 2, "max_length": {"batches": 1}}}
    for config in (search, {**SHORT, "resources": {"slots_per_trial": 2}}):
        with pytest.raises(InvalidExperimentException, match="write it to a file"):
            create(in_session, config, local=True, **place)  # type: ignore[arg-type]
    with pytest.raises(InvalidExperimentException, match="there is no script 'train.py' in the context directory"):
        create(in_session, SHORT, command=["train.py"], **place)  # type: ignore[arg-type]
    assert Determined().list_experiments() == []


def test_invalid_arguments_are_errors(define: Define, context_dir: Path, tmp_path: Path) -> None:
    trial_class, place = define(), str(context_dir)
    (context_dir / "my-train.py").touch()
    (tmp_path / "outside.py").touch()
    for arguments, message in (
        ({}, "context_dir is empty.*context_dir='.'.*local=True"),
        ({"context_dir": "nowhere"}, "context_dir is 'nowhere'; expected a directory"),
        ({"context_dir": place, "config": "c.yaml"}, "config is 'c.yaml'; expected a dict"),
        ({"context_dir": place, "command": "train.py"}, r"command is 'train.py'.*\['train.py', '--flag', 'value'\]"),
        ({"context_dir": place, "command": []}, r"command is \[\]"),
        ({"context_dir": place, "command": ["my-train.py"]}, "'my-train' cannot be imported by this name"),
        ({"context_dir": place, "command": ["../outside.py"]}, "is not in the context directory"),
    ):
        with pytest.raises(InvalidExperimentException, match=message):
            create(trial_class, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="seracher"):
        create(trial_class, {"seracher": {}}, context_dir=place)
    with pytest.raises(InvalidTrial, match="trial_def is <class 'int'>"):
        create(int)  # type: ignore[arg-type]
    with pytest.raises(DetError, match="would send your token over the network without encryption"):
        create(trial_class, context_dir=place, master_url="http://master:8080")

    class Inner(trial_class):  # type: ignore[misc, valid-type]
        pass

    with pytest.raises(InvalidTrial, match="at the top level of its module"):
        create(Inner, context_dir=place)
    assert Determined().list_experiments() == []


def test_the_context_directory_may_have_96_mb(define: Define, context_dir: Path) -> None:
    trial_class = define()
    with (context_dir / "data").open("wb") as data:
        data.truncate(97 << 20)
    with pytest.raises(DetError, match=r"holds 97 MiB, the limit is 96 MiB.*\.detignore"):
        create(trial_class, context_dir=str(context_dir))
    assert Determined().list_experiments() == []


def test_create_in_a_process_of_an_experiment_is_an_error(
    define: Define, context_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = TrialInfo(
        trial_id=2, experiment_id=7, trial_seed=0, hparams={}, config={}, steps_completed=0, trial_run_id=1
    )
    cluster = ClusterInfo(
        master_url="", cluster_id="", agent_id="", slot_ids=[], task_id="", allocation_id="", session_token=""
    )
    for name, info in (("trial", asdict(trial)), ("cluster", asdict(cluster))):
        (tmp_path / f"{name}.json").write_text(json.dumps(info))
    monkeypatch.setenv(INFO_DIR, str(tmp_path))
    get_cluster_info.cache_clear()
    with pytest.raises(InvalidTrial, match="in a process of experiment 7"):
        create(define(), context_dir=str(context_dir))


def test_the_config_names_the_script_and_its_arguments() -> None:
    def script(internal: object) -> tuple[str, ...]:
        config: ExperimentConfig = parse_config({**SHORT, "entrypoint": "a:B", "internal": internal})
        return config.script

    assert script({"native": {"command": ["train.py", "--flag"]}}) == ("train.py", "--flag")
    for other in (None, {}, {"native": None}, {"native": {"command": None}}, {"resource_manager": {}}):
        assert script(other) == ()


def test_create_trial_instance_creates_a_trial_with_a_context(define: Define) -> None:
    config = {"hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}}}
    trial: Any = create_trial_instance(define(), "/nowhere", config)
    assert isinstance(trial.context, TrialContext)
    assert 0 <= trial.context.get_hparam("lr") <= 1
    exact: Any = create_trial_instance(define(), "/nowhere", config, {"lr": 2, "deep": {"a": [1]}})
    assert exact.context.get_hparams() == {"lr": 2, "deep": {"a": [1]}}
    assert exact.evaluate() == {"validation_loss": 1.0}
    with pytest.raises(InvalidTrial, match="trial_def is"):
        create_trial_instance(det_core, "/nowhere")  # type: ignore[arg-type]
