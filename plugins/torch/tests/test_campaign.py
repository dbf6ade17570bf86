"""Trials that are killed at random, up to three times, end bitwise like undisturbed ones."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from det_testing import campaign_seeds
from det_testing.runs import begin_run

from det_core.config import parse_config
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.campaign]

PROGRAM = Path(__file__).with_name("campaign_trial.py")
SEEDS = campaign_seeds(few=1, many=200)
PATIENCE = 120.0
BATCHES = 34


def draw(seed: int, *, torchdata: bool) -> tuple[str, dict[str, Any], list[int]]:
    """Return a style, a config, and the batches after which the process is killed.

    Args:
        seed: seed of what is drawn.
        torchdata: whether the data comes from a ``StatefulDataLoader`` with several workers.
    """
    chance = random.Random(seed)
    style = ("framework", "user")[seed % 2]
    data = {
        "iterable": seed % 5 == 0,
        "shuffle": chance.random() < 0.7,
        "workers": (0, 2)[seed // 2 % 2],
        "dropout": chance.choice([0.0, 0.3]),
        "lr": chance.choice(["STEP_EVERY_EPOCH", "STEP_EVERY_BATCH", "STEP_EVERY_OPTIMIZER_STEP"]),
        "mixed": chance.random() < 0.5,
        "torchdata": torchdata,
    }
    if torchdata:
        data |= {"workers": 2, "iterable": seed % 2 == 0}
    if style == "user" and chance.random() < 0.25:
        data["lr"] = "MANUAL_STEP"
    kills = sorted(chance.sample(range(1, BATCHES), chance.randint(1, 3)))
    if chance.random() < 0.3:  # twice within one epoch
        kills = [kills[0], min(kills[0] + 1, BATCHES - 1)]
    config = {
        "entrypoint": "campaign_trial:Campaign",
        "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": BATCHES}},
        "hyperparameters": {"global_batch_size": 4},
        "scheduling_unit": chance.choice([1, 4, 7]),
        "min_validation_period": {"batches": chance.choice([0, 5, 9])},
        "min_checkpoint_period": {"batches": chance.choice([1, 2, 3, 5])},
        "checkpoint_policy": chance.choice(["best", "all", "none"]),
        "optimizations": {
            "aggregation_frequency": chance.choice([1, 3]),
            "mixed_precision": "O1" if style == "framework" and data["mixed"] else "O0",
        },
        "resources": {"slots_per_trial": 0},
        "records_per_epoch": 20,  # for the stream
        "data": data,
    }
    return style, parse_config(config).dump(), kills


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrackingStore]:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    with open_store() as opened:
        yield opened


class Life:
    """One trial of an experiment, and the processes that train it one after another."""

    def __init__(self, store: TrackingStore, directory: Path, style: str, config: dict[str, Any]) -> None:
        self.store, self.style, self.config = store, style, config
        experiment = store.create_experiment(config=config)
        self.trial_id = store.create_trial(experiment.id, hparams=config["hyperparameters"], seed=5).id
        self.directory = directory / str(self.trial_id)
        self.directory.mkdir()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, kill_after: int = 0) -> None:
        """Start training from the latest checkpoint. The previous process must have ended."""
        begin_run(self.store, self.trial_id, self.directory)
        environment = {
            **os.environ,
            "DET_INFO_DIR": str(self.directory),
            "KILL_AFTER": str(kill_after),
            "OMP_NUM_THREADS": "1",
        }
        with (self.directory / "output").open("ab") as output:
            command = [sys.executable, PROGRAM, self.style]
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)

    def end(self) -> int:
        """Return the exit code of the process that was started."""
        assert self.process
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process = psutil.Process(self.process.pid)
            for hanging in [process, *process.children(recursive=True)]:
                hanging.send_signal(signal.SIGUSR1)  # the processes print their stacks
                time.sleep(1)
            pytest.fail(f"hung, with {self.config}:\n{self.output()}")
        finally:
            self.process.kill()
            self.process.wait()

    def output(self) -> str:
        return (self.directory / "output").read_text()[-20_000:]

    def result(self, fingerprint: Any) -> Any:
        """Return everything that must not differ."""
        metrics = [(m.group, m.steps_completed, m.metrics, m.batch_metrics) for m in self.store.metrics(self.trial_id)]
        last = self.store.checkpoints(trial_id=self.trial_id)[-1]
        assert last.steps_completed == BATCHES, self.output()
        file = Path(last.storage["container_path"], last.uuid, "state_dict.pth")
        return fingerprint([metrics, torch.load(file, weights_only=True)])


@pytest.mark.parametrize("torchdata", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_trial_killed_at_random_equals_an_undisturbed_one(
    seed: int, torchdata: bool, store: TrackingStore, tmp_path: Path, fingerprint: Any
) -> None:
    style, config, kills = draw(seed, torchdata=torchdata)
    undisturbed, killed = (Life(store, tmp_path, style, config) for _ in range(2))
    undisturbed.start()
    try:
        for kill_after in kills:
            killed.start(kill_after)
            assert killed.end() == -signal.SIGKILL, killed.output()
        killed.start()
        assert killed.end() == 0, killed.output()
    finally:
        code = undisturbed.end()
    assert code == 0, undisturbed.output()
    assert killed.result(fingerprint) == undisturbed.result(fingerprint), (style, config, kills)
