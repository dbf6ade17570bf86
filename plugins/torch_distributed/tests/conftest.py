"""Experiments with one trial, trained by real processes on one slot or several."""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from det_torch_distributed._options import Options
from det_torch_distributed._torchrun import Torchrun

from det_core.config import parse_config
from det_core.core._info import get_cluster_info
from det_core.interfaces.backend import Place
from det_core.interfaces.tracking import Checkpoint, TrackingStore
from det_core.tracking import open_store

PROGRAM = Path(__file__).with_name("trials.py")
PATIENCE = 60.0
SEED = 5
HPARAMS = {"global_batch_size": 8}
CONFIG: dict[str, Any] = {
    "entrypoint": "trials:Trial",
    "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 14}},
    "hyperparameters": HPARAMS,
    "scheduling_unit": 4,
    "min_validation_period": {"batches": 7},
    "min_checkpoint_period": {"batches": 3},
    "checkpoint_policy": "none",
    "perform_initial_validation": True,
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Job:
    """One trial, and the processes that train it, one run after another."""

    def __init__(self, store: TrackingStore, directory: Path, style: str, keys: dict[str, Any]) -> None:
        self.store, self.style = store, style
        self.config = parse_config({**CONFIG, **keys}).dump()
        experiment = store.create_experiment(config=self.config)
        self.trial_id = store.create_trial(experiment.id, hparams=HPARAMS, seed=SEED).id
        self.directory = directory / str(self.trial_id)
        self.directory.mkdir()

    def train_here(self) -> Job:
        """On one slot, in this process."""
        self._describe()
        get_cluster_info.cache_clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DET_INFO_DIR", str(self.directory))
            runpy.run_path(str(PROGRAM))["train"](self.style)
        return self

    def run(self, slots: int, **environment: str) -> int:
        """Train from the latest checkpoint on; the exit code."""
        self._describe()
        worker, added = [sys.executable, str(PROGRAM), self.style], {}
        if slots > 1:
            place = Place(hosts=["127.0.0.1"], node=0, slots=slots, port=free_port(), directory=self.directory)
            start = Torchrun(Options()).start(place, worker)
            worker = list(start.argv)
            meeting = {"DET_BACKEND": "torch_distributed", "INTER_TRAIN_PROCESS_COMM_PORT_1": str(free_port())}
            added = {**start.env, **meeting}
        environment = {
            **os.environ, "DET_INFO_DIR": str(self.directory), "OMP_NUM_THREADS": "1", **added, **environment,
        }  # fmt: skip
        with (self.directory / "output").open("ab") as output:
            return subprocess.run(worker, env=environment, stdout=output, stderr=output, timeout=PATIENCE).returncode

    def succeed(self, slots: int, **environment: str) -> Job:
        """As `run`, to the end."""
        assert self.run(slots, **environment) == 0, self.output()
        return self

    def output(self) -> str:
        return (self.directory / "output").read_text()[-20_000:]

    def checkpoints(self) -> list[Checkpoint]:
        return [row for row in self.store.checkpoints(trial_id=self.trial_id) if row.state.name == "COMPLETED"]

    def state(self) -> dict[str, Any]:
        """The latest checkpoint's."""
        last = self.checkpoints()[-1]
        file = Path(last.storage["container_path"], last.uuid, "state_dict.pth")
        state: dict[str, Any] = torch.load(file, weights_only=True)
        return state

    def metrics(self, group: str) -> list[Any]:
        return [
            (report.steps_completed, report.metrics, report.batch_metrics)
            for report in self.store.metrics(self.trial_id)
            if report.group == group
        ]

    def _describe(self) -> None:
        trial = self.store.trial(self.trial_id)
        run = self.store.start_run(self.trial_id, allocation_id=str(uuid.uuid4()))
        saved = self.checkpoints()
        cluster = {
            **dict.fromkeys(("cluster_id", "agent_id", "task_id", "session_token"), ""),
            "master_url": self.store.url,
            "slot_ids": [],
            "allocation_id": run.allocation_id,
            "latest_checkpoint": saved[-1].uuid if saved else None,
        }
        place = {
            "trial_id": trial.id,
            "experiment_id": trial.experiment_id,
            "trial_run_id": run.run_id,
            "trial_seed": SEED,
            "hparams": trial.hparams,
            "config": self.config,
            "steps_completed": saved[-1].steps_completed if saved else 0,
        }
        (self.directory / "cluster.json").write_text(json.dumps(cluster))
        (self.directory / "trial.json").write_text(json.dumps(place))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    get_cluster_info.cache_clear()


@pytest.fixture
def make_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Job]]:
    """Makes a job of a style, with keys that differ from the config of all."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    with open_store() as store:
        yield lambda style, **keys: Job(store, tmp_path, style, keys)


@pytest.fixture
def bits() -> Callable[[Any], Any]:
    """Equal results = bitwise equal values."""
    return _bits


def _bits(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dict):
        return {key: _bits(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_bits(item) for item in value]
    return value
