"""Contexts without a tracking store, and fingerprints of state."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from det_testing.comparison import bitwise_form
from det_testing.runs import begin_run
from det_torch import PyTorchTrial, PyTorchTrialContext
from det_torch._run import run_trial

from det_core import core, get_cluster_info
from det_core.config import parse_config, sample_hyperparameters
from det_core.core import single_process
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

sys.path.insert(0, str(Path(__file__).parent))

CONFIG: dict[str, Any] = {
    "name": "test",
    "entrypoint": "model_def:Trial",
    "hyperparameters": {"global_batch_size": 4},
    "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 10}},
    "scheduling_unit": 4,
    "resources": {"slots_per_trial": 0},
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with data workers as integration tests, because data workers are processes."""
    for item in items:
        if "workers" in item.name.partition("[")[2]:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def make_context() -> Callable[..., PyTorchTrialContext]:
    """Return a function that makes a context from a minimal config with the given keys changed."""

    def make(*, seed: int = 11, hparams: dict[str, Any] | None = None, **keys: Any) -> PyTorchTrialContext:
        return PyTorchTrialContext(
            config=parse_config({**CONFIG, **keys}),
            hparams={"global_batch_size": 4, **(hparams or {})},
            trial_id=1,
            experiment_id=1,
            trial_seed=seed,
            distributed=single_process(),
        )

    return make


@pytest.fixture
def example_config() -> dict[str, Any]:
    return {**CONFIG}


@pytest.fixture
def fingerprint() -> Callable[[Any], Any]:
    """Return a function whose results are equal exactly if the values are bitwise equal."""
    return _fingerprint


def _fingerprint(value: Any) -> Any:
    return bitwise_form(torch.load(value / "state_dict.pth", weights_only=True) if isinstance(value, Path) else value)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrackingStore]:
    """Return the tracking store of the trials that `train` trains."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DET_INFO_DIR", str(tmp_path))
    with open_store() as opened:
        yield opened
    get_cluster_info.cache_clear()


@pytest.fixture
def train(store: TrackingStore, tmp_path: Path) -> Callable[..., int]:
    """Return a function that runs a trial in this process, a new one unless an id is given, and returns its id."""

    def start(trial_class: type[PyTorchTrial], config: dict[str, Any], trial_id: int | None = None) -> int:
        parsed = parse_config(config)
        config, hparams = parsed.dump(), sample_hyperparameters(parsed.hyperparameters, random.Random(0))
        if trial_id is None:
            experiment = store.create_experiment(config=config)
            trial_id = store.create_trial(experiment.id, hparams=hparams, seed=5).id
        begin_run(store, trial_id, tmp_path)
        get_cluster_info.cache_clear()
        with core.init() as context:
            run_trial(trial_class, context)
        return trial_id

    return start
