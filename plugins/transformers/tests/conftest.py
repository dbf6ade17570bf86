"""Trials that train a tiny model, made on the spot, with a ``Trainer`` in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from det_testing.runs import begin_run

from det_core import core, get_cluster_info
from det_core.config import parse_config
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

sys.path.insert(0, str(Path(__file__).parent))
os.environ["HF_HUB_OFFLINE"] = "1"

from tiny_training import Training

CONFIG = {
    "entrypoint": "python train.py",
    "searcher": {"name": "single", "metric": "eval_loss", "max_length": {"epochs": 2}},
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrackingStore]:
    """Return the tracking store of the trials that `Trial` trains."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DET_INFO_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with open_store() as opened:
        yield opened
    get_cluster_info.cache_clear()


@pytest.fixture
def make_trial(store: TrackingStore, tmp_path: Path) -> Callable[..., Trial]:
    """Return a function that makes a trial, with keys of its searcher."""
    return lambda **searcher: Trial(store, tmp_path, {"searcher": {**CONFIG["searcher"], **searcher}})


class Trial:
    """Trial whose runs all train in this process, each from what the one before has stored."""

    def __init__(self, store: TrackingStore, directory: Path, config: dict[str, object]) -> None:
        parsed = parse_config({**CONFIG, **config}).dump()
        self.store, self._directory = store, directory
        self.id = store.create_trial(store.create_experiment(config=parsed).id, hparams={}, seed=5).id
        self.output = directory / f"output-{self.id}"
        (length,) = parsed["searcher"]["max_length"].values()
        self.request(length)

    def request(self, length: int) -> None:
        """Ask the trial to train for a length, as a search method does."""
        self.store.set_searcher_operation(self.id, length)

    def run(self, training: Training) -> None:
        begin_run(self.store, self.id, self._directory)
        get_cluster_info.cache_clear()
        with core.init() as core_context:
            training.run(core_context, self.output)

    def metrics(self, group: str) -> list[tuple[int, dict[str, object]]]:
        return [(row.steps_completed, dict(row.metrics)) for row in self.store.metrics(self.id) if row.group == group]

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints."""
        return [row.steps_completed for row in self.store.checkpoints(trial_id=self.id)]

    def latest(self) -> Path:
        row = self.store.checkpoints(trial_id=self.id)[-1]
        return Path(row.storage["container_path"], row.uuid)
