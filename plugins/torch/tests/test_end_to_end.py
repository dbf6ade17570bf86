"""Examples that run through the command line and are killed end bitwise like undisturbed ones."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from det_testing import campaign_seeds, is_soak

from det_core.processes import process_has_ended
from det_core.tracking import open_store

pytestmark = [pytest.mark.integration, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[3] / "examples"
DET = str(Path(sys.executable).parent / "det")
SEEDS = campaign_seeds(few=1, many=20)
BATCHES = 180

KILLER = """
import os, signal
from pathlib import Path
from model_def import DigitsTrial

def maybe_die(batch):
    for number in filter(None, os.environ.get("KILL_AT", "").split(",")):
        mark = Path(os.environ["MARKS"], number)
        if batch == int(number) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""
STYLES = {
    "digits_pytorch": """
class Killed(DigitsTrial):
    def train_batch(self, batch, model, epoch_idx, batch_idx):
        maybe_die(batch_idx)
        return super().train_batch(batch, model, epoch_idx, batch_idx)
""",
    "digits_pytorch_context": """
class Killed(DigitsTrial):
    def train_batch(self, batch, epoch_idx, batch_idx):
        maybe_die(batch_idx)
        return super().train_batch(batch, epoch_idx, batch_idx)
""",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def det(*arguments: object) -> Any:
    """Run ``det ... --json`` and return the parsed output."""
    command = [DET, *map(str, arguments), "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, (command, result.stdout[-3000:], result.stderr[-3000:])
    return json.loads(result.stdout)


def prepare(tmp_path: Path, example: str, kill_at: list[int], **changes: Any) -> Path:
    """Copy an example so that it dies once at each of the given batches, and return the path of its config."""
    directory = tmp_path / f"{example}-{len(list(tmp_path.iterdir()))}"
    shutil.copytree(EXAMPLES / example, directory, ignore=shutil.ignore_patterns("__pycache__"))
    (directory / "killer.py").write_text(KILLER + STYLES[example])
    marks = directory.with_name(directory.name + "-marks")
    marks.mkdir()
    config = yaml.safe_load((directory / "const.yaml").read_text())
    config["searcher"]["max_length"] = {"batches": BATCHES}
    variables = [f"MARKS={marks}", f"KILL_AT={','.join(map(str, kill_at))}"]
    config |= {
        "entrypoint": "killer:Killed",
        "scheduling_unit": 25,
        "min_validation_period": {"batches": 40},
        "min_checkpoint_period": {"batches": 17},
        "max_restarts": len(kill_at),
        "environment": {"environment_variables": variables},
        **changes,
    }
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def ending(experiment_id: int) -> tuple[list[Any], dict[str, Any]]:
    """Return all metrics that survived, and the state in the last checkpoint."""
    with open_store() as store:
        (trial,) = store.trials(experiment_id)
        metrics = [(m.group, m.steps_completed, m.metrics, m.batch_metrics) for m in store.metrics(trial.id)]
        last = store.checkpoints(trial_id=trial.id)[-1]
    assert last.steps_completed == BATCHES
    path = Path(last.storage["container_path"], last.uuid, "state_dict.pth")
    return metrics, torch.load(path, weights_only=True)


def assert_same(one: Any, other: Any, where: str = "state") -> None:
    """Assert that two values are bitwise equal at any depth."""
    assert type(one) is type(other), where
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{where}[{index}]")
    else:
        assert one == other, where


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("example", STYLES if is_soak() else ["digits_pytorch_context"])
def test_a_trial_killed_at_random_batches_equals_an_undisturbed_one(tmp_path: Path, example: str, seed: int) -> None:
    kill_at = sorted(random.Random(seed).sample(range(BATCHES), 5 if is_soak() else 2))
    calm = det("run", prepare(tmp_path, example, []))
    killed = det("run", prepare(tmp_path, example, kill_at))
    assert killed["restarts"] == len(kill_at), kill_at
    (metrics, state), (same_metrics, same_state) = ending(calm["id"]), ending(killed["id"])
    assert metrics == same_metrics, kill_at
    assert_same(state, same_state)


def test_a_continued_experiment_equals_an_undisturbed_one(tmp_path: Path) -> None:
    """Model, optimizer, schedule of the learning rate, dropout and the order of the data go on at half of the way."""
    undisturbed = det("run", prepare(tmp_path, "digits_pytorch", []), "--config", "min_validation_period.batches=45")
    half = f"searcher.max_length={{batches: {BATCHES // 2}}}"
    config = prepare(tmp_path, "digits_pytorch", [])
    continued = det("run", config, "--config", half, "--config", "min_validation_period.batches=45")
    full = f"searcher.max_length={{batches: {BATCHES}}}"
    assert det("experiment", "continue", continued["id"], "--config", full, "--follow")["steps_completed"] == BATCHES
    (metrics, state), (same_metrics, same_state) = ending(undisturbed["id"]), ending(continued["id"])
    assert metrics == same_metrics
    assert_same(state, same_state)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_an_experiment_whose_runner_was_killed_is_resumed_by_hand(tmp_path: Path, seed: int) -> None:
    calm = det("run", prepare(tmp_path, "digits_pytorch", []))
    slow = prepare(tmp_path, "digits_pytorch", [])
    killer = slow.with_name("killer.py")
    killer.write_text(killer.read_text().replace("    for number", "    import time; time.sleep(0.02)\n    for number"))
    experiment_id = det("experiment", "create", slow, slow.parent)["id"]
    with open_store() as store:
        deadline = time.monotonic() + 60
        while not store.checkpoints(experiment_id=experiment_id):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(random.Random(seed).random())
        holder = store.lease_holder(experiment_id)
        assert holder
        runner = int(holder.rsplit(":", 3)[1])
        os.kill(runner, signal.SIGKILL)
        while not process_has_ended(runner):  # os.kill returns before the process is gone
            assert time.monotonic() < deadline + 60
            time.sleep(0.01)
    det("experiment", "resume", experiment_id)
    det("experiment", "wait", experiment_id)
    (metrics, state), (same_metrics, same_state) = ending(calm["id"]), ending(experiment_id)
    assert metrics == same_metrics
    assert_same(state, same_state)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_an_experiment_whose_training_process_was_killed_is_resumed_by_hand(tmp_path: Path, seed: int) -> None:
    calm = det("run", prepare(tmp_path, "digits_pytorch", []))
    killed = prepare(tmp_path, "digits_pytorch", [random.Random(seed).randrange(BATCHES)], max_restarts=0)
    assert subprocess.run([DET, "run", killed], capture_output=True, timeout=240).returncode == 1
    experiment_id = calm["id"] + 1
    det("experiment", "resume", experiment_id, "--follow")
    (metrics, state), (same_metrics, same_state) = ending(calm["id"]), ending(experiment_id)
    assert metrics == same_metrics
    assert_same(state, same_state)
