"""Experiments of the toy framework, installed as a distribution of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from det_core import storage
from det_core.config import parse_config
from det_core.core import open_storage_block
from det_core.home import default_storage
from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.plugins import plugin_registry
from det_core.runner import submit_experiment
from det_core.testing._plugin_metadata import write_plugin_metadata
from det_core.tracking import open_store

TOY = Path(__file__).parent.parent / "toy" / "det_toy.py"

Submit = Callable[..., ExperimentRecord]


def install_plugin(site: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a plugin that consists of one file."""
    write_plugin_metadata(site, file.stem.replace("_", "-"))
    shutil.copy(file, site)
    monkeypatch.delitem(sys.modules, file.stem, raising=False)
    plugin_registry.cache_clear()


@pytest.fixture(autouse=True)
def toy_framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = tmp_path / "site"
    install_plugin(site, TOY, monkeypatch)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.syspath_prepend(site)
    return site


@pytest.fixture
def store(det_home: Path) -> Iterator[TrackingStore]:
    with open_store() as store:
        yield store


@pytest.fixture
def context_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "code"
    directory.mkdir()
    return directory


def start_runner(store: TrackingStore, experiment_id: int) -> subprocess.Popen[bytes]:
    """Start a runner as a child process, as `start_detached` does."""
    runner = subprocess.Popen(
        [sys.executable, "-m", "det_core.runner", str(experiment_id)], stdin=subprocess.PIPE, bufsize=0
    )
    assert runner.stdin
    with runner.stdin as pipe:
        pipe.write(f"{store.url}\n".encode())
    return runner


def keep_all() -> dict[str, Any]:
    """Return the default storage with a policy that removes nothing."""
    return {**default_storage(), "save_trial_latest": 1000}


@pytest.fixture
def new_experiment(store: TrackingStore, context_dir: Path) -> Submit:
    """Submit a trial class, given as the body of ``class T(ToyTrial)``, with changed config keys."""

    def new(body: str = "pass", **changes: Any) -> ExperimentRecord:
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        (context_dir / "model_def.py").write_text(
            f"import os, signal, time\nfrom pathlib import Path\nimport det_core as det\n"
            f"from det_toy import ToyTrial\nclass T(ToyTrial):\n{lines}"
        )
        config = {
            "name": "toy",
            "entrypoint": "model_def:T",
            "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 50}},
            "scheduling_unit": 10,
            "reproducibility": {"experiment_seed": 7},
            "checkpoint_storage": keep_all(),
            **changes,
        }
        return submit_experiment(store, parse_config(config), context_dir)

    return new


@pytest.fixture
def saved(store: TrackingStore, tmp_path: Path) -> Callable[..., ExperimentRecord]:
    """Record an experiment whose trial saved three checkpoints and ended in a state."""

    def save(state: State, **searcher: Any) -> ExperimentRecord:
        block = {"type": "directory", "container_path": str(tmp_path / "checkpoints"), "save_trial_latest": 1}
        searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 40}, **searcher}
        config = parse_config({"entrypoint": "true", "searcher": searcher, "checkpoint_storage": block}).dump()
        experiment = store.create_experiment(config=config)
        trial = store.create_trial(experiment.id, hparams={}, seed=0)
        run = store.start_run(trial.id, allocation_id="a")
        for number in (1, 2, 3):
            uuid = f"{experiment.id}-{number}"
            store.begin_checkpoint(uuid, trial_id=trial.id, run_id=run.run_id, storage=block)
            resources = storage.save_checkpoint(open_storage_block(block), uuid, {}, {"steps_completed": number})
            store.complete_checkpoint(uuid, run_id=run.run_id, steps_completed=number, resources=resources, metadata={})
        store.set_trial_state(trial.id, state)
        store.set_experiment_state(experiment.id, state)
        return store.experiment(experiment.id)

    return save
