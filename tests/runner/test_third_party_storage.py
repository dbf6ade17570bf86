"""Third-party storage plugin, installed as a distribution of its own and selected by config."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from det_core.cli import main
from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.plugins import plugin_registry
from det_core.runner import ExperimentRunner
from det_core.storage import open_storage, restore_checkpoint

pytestmark = pytest.mark.integration

PLUGIN = Path(__file__).parents[2] / "examples" / "storage_plugin"


@pytest.fixture(scope="module")
def installed_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the plugin as pip does, once, and return the directory."""
    source, target = (tmp_path_factory.mktemp(name) for name in ("plugin", "target"))
    for name in ("pyproject.toml", "det_gzip.py"):
        (source / name).write_text((PLUGIN / name).read_text())
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
    subprocess.run([*pip, "--target", target, source], check=True, timeout=240)
    return target


@pytest.fixture
def gzip_plugin(installed_files: Path, plugin_site: Path) -> None:
    """Install the plugin beside the toy framework."""
    shutil.copytree(installed_files, plugin_site, dirs_exist_ok=True)
    plugin_registry.cache_clear()


@pytest.mark.usefixtures("gzip_plugin")
def test_checkpoints_are_stored_by_the_plugin_and_resumed_from_it(
    store: TrackingStore, new_experiment: Callable[..., ExperimentRecord], tmp_path: Path
) -> None:
    base = tmp_path / "packed"
    mark = tmp_path / "mark"
    experiment = new_experiment(
        f"def on_batch(self, batch):\n"
        f"    if batch == 25 and not Path({str(mark)!r}).exists():\n"
        f"        Path({str(mark)!r}).touch()\n"
        f"        os.kill(os.getpid(), signal.SIGKILL)",
        checkpoint_storage={"type": "gzip", "path": str(base), "level": 9},
        min_checkpoint_period={"batches": 10},
    )
    assert ExperimentRunner(store, experiment.id).run() is State.COMPLETED
    (trial,) = store.trials(experiment.id)
    assert (trial.run_id, trial.steps_completed) == (2, 50)
    last = store.checkpoints(trial_id=trial.id)[-1]
    state = json.loads(gzip.decompress((base / last.uuid / "toy.json.gz").read_bytes()))
    assert state["batch"] == 50
    block = ExperimentRunner(store, experiment.id)._config.checkpoint_storage
    assert block
    restore_checkpoint(open_storage("gzip", block.options), last.uuid, tmp_path / "back")
    assert json.loads((tmp_path / "back" / "toy.json").read_text()) == state


@pytest.mark.usefixtures("gzip_plugin")
def test_files_left_by_a_killed_run_are_removed_by_the_plugin(
    store: TrackingStore,
    new_experiment: Callable[..., ExperimentRecord],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = tmp_path / "packed"
    experiment = new_experiment(checkpoint_storage={"type": "gzip", "path": str(base)})
    assert ExperimentRunner(store, experiment.id).run() is State.COMPLETED
    (trial,) = store.trials(experiment.id)
    (kept,) = store.checkpoints(trial_id=trial.id)
    left = [str(uuid.uuid4()), str(uuid.uuid4())]
    store.begin_checkpoint(left[0], trial_id=trial.id, run_id=trial.run_id, storage=kept.storage)
    for storage_id in left:
        (base / storage_id).mkdir()
        (base / storage_id / "w.gz").touch()
    assert main(["checkpoint", "gc", "--orphans", "--json", "--older-than", "0s"]) == 0
    assert [one["uuid"] for one in json.loads(capsys.readouterr().out)["orphans"]] == left
    remaining = {path.name for path in base.iterdir()}
    assert kept.uuid in remaining
    assert not remaining & set(left)


@pytest.mark.usefixtures("gzip_plugin")
def test_the_plugin_is_listed_and_its_options_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "list", "--json"]) == 0
    assert "det-gzip" in capsys.readouterr().out
    config = tmp_path / "c.yaml"
    config.write_text(
        "entrypoint: m:T\nsearcher: {name: single, metric: loss, max_length: {batches: 1}}\n"
        "checkpoint_storage:\n  type: gzip\n  path: /x\n  level: 11\n"
    )
    assert main(["config", "check", str(config)]) == 2
    assert "c.yaml:6: checkpoint_storage.level" in capsys.readouterr().err
