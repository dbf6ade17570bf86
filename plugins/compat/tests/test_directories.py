"""Old experiments run, resume after a crash and load, without any of the new names.

Do not change the directories when det changes. They represent code that nobody maintains.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from det_testing import is_soak
from determined.experimental import create

from det_core.cli import main
from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

DIRECTORIES = Path(__file__).parent / "directories"
PROGRAMS = Path(sys.executable).parent
CREATE = (str(PROGRAMS / "det"), "experiment", "create", "const.yaml", ".", "--follow")
TWO_SLOTS = (*CREATE, "--config", "launcher.slots=2")
"""Command with two slots, which a machine without GPUs does not have by default."""
BACKEND = ("--config", "distributed.backend=torch_distributed")
"""Option that chooses a backend, needed where several are installed, except for entrypoints that name their own."""

CRASH = """
import os, signal
from pathlib import Path
import det_core

@det_core.hookimpl
def det_checkpoint_saved(event):
    mark = Path(os.environ["CRASHED"])
    if not mark.exists():
        mark.write_text(f"{event.trial_id} {event.steps_completed}")
        os.kill(os.getpid(), signal.SIGKILL)
"""
LOAD = """
import sys
from pathlib import Path
from determined.experimental import Determined

checkpoint = Determined().get_experiment(int(sys.argv[1])).top_checkpoint()
path = checkpoint.download("best")
assert checkpoint.batch_number == int(sys.argv[2])
"""
MODEL = """
import torch
model = checkpoint.load("best")
assert isinstance(model, torch.nn.Module)
assert model(torch.zeros({shape})).shape == (2, {classes})
"""
TRIAL = """
import torch
from determined.pytorch import PyTorchTrial
trial = checkpoint.load("best")
assert isinstance(trial, PyTorchTrial)
assert trial.{model}(torch.zeros({shape})).shape == {result}
"""


@dataclass(frozen=True)
class Old:
    """Old experiment, with the command that runs it and the code that loads its checkpoint."""

    load: str
    """Python code that loads the checkpoint in the directory ``path``, run after `LOAD`."""
    modules: tuple[str, ...] = ("torch", "det_torch")
    """Modules that it needs, in addition to scikit-learn."""
    command: tuple[str, ...] = CREATE
    trials: int = 1
    note: str = ""
    """Text of a note about the config in the output."""
    crashes: bool = False
    """Whether it crashes in ``make test-more``, too. In ``make soak`` all do."""


ONE_BATCH = (
    "breast_cancer_017_reducers",
    "diabetes_019_two_slots",
    "digits_014_context",
    "digits_016_gan",
    "iris_012_adaptive",
    "wine_018_callbacks",
)
"""Trials of which one batch is trained. ``make soak`` runs the whole experiments."""
SOAK = (*ONE_BATCH, "digits_030_core_two_slots")


TF = ("tensorflow", "det_tensorflow")
SLOTS = ("torch", "det_torch", "det_torch_distributed")
OLD = {
    "digits_012_steps": Old(
        MODEL.format(shape="2, 1, 8, 8", classes=10),
        note="read as 15 batches per step, searcher.max_steps became",
        crashes=True,
    ),
    "iris_012_adaptive": Old(
        MODEL.format(shape="2, 4", classes=3), trials=3, note="the search method adaptive_simple no longer exists"
    ),
    "iris_012_create": Old(
        MODEL.format(shape="2, 4", classes=3) + "assert model[0].out_features == 16",
        command=(sys.executable, "train.py", "--hidden", "16"),
        crashes=True,
    ),
    "digits_014_context": Old(TRIAL.format(model="model", shape="2, 64", result="(2, 10)")),
    "digits_016_gan": Old(
        TRIAL.format(model="generator", shape="2, 16", result="(2, 64)") + "assert len(trial.context.models) == 2",
        note="are ignored: environment.image, bind_mounts",
    ),
    "breast_cancer_017_reducers": Old(
        TRIAL.format(model="model", shape="2, 30", result="(2, 1)")
        + 'metrics = checkpoint.validation["metrics"]["validationMetrics"]\n'
        + 'assert metrics.keys() >= {"auc", "recall_malignant", "recall_benign", "validation_loss"}'
    ),
    "wine_018_callbacks": Old(
        TRIAL.format(model="model", shape="2, 13", result="(2, 3)")
        + "from det_torch._checkpoints._packing import unpack_state\n"
        + 'state = unpack_state(torch.load("best/state_dict.pth", weights_only=True))["callbacks"]\n'
        + 'assert state["early_stopping"]["best"] == checkpoint.validation["metrics"]["validationMetrics"]'
        + '["validation_loss"]\n'
        + 'assert state["moving_average"]["epochs"] == list(range(checkpoint.batch_number // 9))\n'
        + 'assert Path("best/epochs.json").is_file()'
    ),
    "diabetes_019_two_slots": Old(
        TRIAL.format(model="model", shape="2, 10", result="(2,)"), modules=SLOTS, command=(*TWO_SLOTS, *BACKEND)
    ),
    "digits_019_estimator": Old(
        "import tensorflow as tf\n"
        "model = checkpoint.load('best')\n"
        "digits = model.signatures['serving_default'](pixels=tf.zeros((2, 64)))['digit']\n"
        "assert digits.shape == (2,)\n"
        "assert Path(path, 'note.txt').read_text().startswith('written by determined')",
        modules=(*TF, "det_estimator"),
    ),
    "iris_019_keras": Old(
        "import numpy as np\n"
        "from determined.keras import load_model_from_checkpoint_path\n"
        "measurements = np.ones((2, 4), np.float32)\n"
        "scores = checkpoint.load('best').predict(measurements)\n"
        "assert scores.shape == (2, 3)\n"
        "assert (load_model_from_checkpoint_path(path).predict(measurements) == scores).all()\n"
        "assert Path(path, 'workloads.txt').is_file()",
        modules=(*TF, "det_keras"),
    ),
    "wine_030_core": Old(
        "import pickle\n"
        "state = pickle.loads(Path(path, 'state.pkl').read_bytes())\n"
        "assert state['weights'].shape == (13, 3)\n"
        "assert state['batch'] == checkpoint.batch_number\n"
        "assert checkpoint.metadata['kind'] == 'softmax regression'",
        modules=(),
        crashes=True,
    ),
    "digits_030_core_two_slots": Old(
        "import torch\n"
        "assert torch.load('best/model.pt', weights_only=True)['model']['3.weight'].shape == (10, 32)\n"
        "assert Path(path, 'rng_0.pt').is_file() and Path(path, 'rng_1.pt').is_file()",
        modules=SLOTS,
        command=TWO_SLOTS,
    ),
    "digits_030_launch_trial": Old(
        "import model_def  # det itself imports nothing from a directory that contains the checkpoint\n"
        + TRIAL.format(model="model", shape="2, 64", result="(2, 10)"),
        modules=SLOTS,
        command=TWO_SLOTS,
        note="startup-hook.sh is not run",
    ),
    "digits_038_trainer": Old(
        "import model_def\n"
        "import torch\n"
        "from determined import pytorch\n"
        "kwargs = {'hparams': checkpoint.hparams}\n"
        "trial = pytorch.load_trial_from_checkpoint_path(path, trial_kwargs=kwargs)\n"
        "assert trial.model(torch.zeros(2, 64)).shape == (2, 10)",
        crashes=True,
    ),
}


def _missing(modules: tuple[str, ...]) -> list[str]:
    return [name for name in ("sklearn", *modules) if importlib.util.find_spec(name) is None]


def _marks(name: str) -> list[pytest.MarkDecorator]:
    missing = _missing(OLD[name].modules)
    return [
        pytest.mark.skipif(bool(missing), reason=f"needs {missing}"),
        *([pytest.mark.soak] if name in SOAK else []),
    ]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in OLD])
def test_an_old_experiment_runs_resumes_after_a_crash_and_loads(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, directory = OLD[name], tmp_path / name
    shutil.copytree(DIRECTORIES / name, directory, ignore=shutil.ignore_patterns("__pycache__"))
    crashes = old.crashes or is_soak()
    crashed = _crash_after_the_first_checkpoint(tmp_path, monkeypatch) if crashes else None
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))

    output = _run(old.command, directory)
    assert old.note in output
    with open_store() as store:
        (experiment,) = store.experiments()
        _wait_for_the_end(store, experiment)
        if crashed:
            (trial_id, saved_at) = map(int, crashed.read_text().split())
            _assert_resumed(store, trial_id, saved_at)
        trials = store.trials(experiment.id)
        best = store.scored_checkpoints(experiment.id, limit=1)[0].checkpoint
    assert len(trials) == old.trials
    assert sum(trial.restarts for trial in trials) == crashes

    _run((sys.executable, "-c", LOAD + old.load, str(experiment.id), str(best.steps_completed)), directory)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_BATCH)
def test_an_old_trial_trains_a_batch(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if missing := _missing(OLD[name].modules):
        pytest.skip(f"needs {missing}")
    directory = Path(shutil.copytree(DIRECTORIES / name, tmp_path / name))
    monkeypatch.syspath_prepend(directory)
    known = {*sys.modules}
    config = yaml.safe_load((directory / "const.yaml").read_text())
    module, _, trial_class = config["entrypoint"].partition(":")
    try:
        create(getattr(importlib.import_module(module), trial_class), config, True, True, str(directory))
    finally:
        for added in {*sys.modules} - known:
            if (getattr(sys.modules[added], "__file__", None) or "").startswith(str(directory)):
                del sys.modules[added]
    printed = capsys.readouterr().out
    assert "The test passed: training metrics" in printed
    assert "validation metrics" in printed


def test_every_directory_is_tested() -> None:
    assert {path.name for path in DIRECTORIES.iterdir()} == OLD.keys()


def test_the_directories_use_only_old_names() -> None:
    for file in DIRECTORIES.rglob("*.*"):
        if file.suffix in (".py", ".yaml", ".sh"):
            assert "det_" not in file.read_text(), file


def _crash_after_the_first_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a plugin that kills the process that saved the first checkpoint.

    Returns:
        The file to which it writes the trial and the batch.
    """
    info = tmp_path / "site" / "det_crash-1.0.dist-info"
    info.mkdir(parents=True)
    info.with_name("det_crash.py").write_text(CRASH)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: det-crash\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[det]\ncrash = det_crash\n")
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(info.parent), before))))
    monkeypatch.setenv("CRASHED", str(tmp_path / "crashed"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path / "crashed"


def _run(command: tuple[str, ...], directory: Path) -> str:
    ran = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-5000:]
    return ran.stdout + ran.stderr


def _wait_for_the_end(store: TrackingStore, experiment: ExperimentRecord) -> None:
    """Wait until the experiment is complete, because a script that calls ``create`` returns before."""
    assert main(["experiment", "wait", str(experiment.id), "--timeout", "240"]) == 0
    assert store.experiment(experiment.id).state is State.COMPLETED


def _assert_resumed(store: TrackingStore, trial_id: int, saved_at: int) -> None:
    """Check that reports before the crash are kept, and that the next run only reported batches after the checkpoint.

    A run that starts from the beginning replaces the reports of earlier runs.
    """
    reports = list(store.metrics(trial_id))
    before = {report.run_id for report in reports if report.steps_completed < saved_at}
    before = before or {report.run_id for report in reports if report.steps_completed == saved_at}
    after = {report.run_id for report in reports if report.steps_completed > saved_at}
    assert (before, after) == ({1}, {2}), [(one.run_id, one.group, one.steps_completed) for one in reports]
