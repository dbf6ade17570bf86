"""Contexts without a tracking store, and fingerprints of state."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from det_torch import PyTorchTrialContext

from det_core.config import parse_config
from det_core.core import single_process
from det_core.testing.comparison import bitwise_form

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
