"""Fixtures for contexts without a tracking store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from det_keras import TFKerasTrialContext
from det_keras._random import seed_all

from det_core.config import parse_config
from det_core.core import single_process

CONFIG: dict[str, Any] = {
    "name": "test",
    "entrypoint": "model_def:Trial",
    "hyperparameters": {"global_batch_size": 4},
    "searcher": {"name": "single", "metric": "val_loss", "max_length": {"batches": 10}},
    "resources": {"slots_per_trial": 0},
}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Seed all generators, as `det_keras._run.run_trial` does."""
    seed_all(11)


@pytest.fixture
def make_context() -> Callable[..., TFKerasTrialContext]:
    """Function that makes a context from a minimal config with the given keys."""

    def make(*, distributed: Any = None, seed: int = 11, **keys: Any) -> TFKerasTrialContext:
        return TFKerasTrialContext(
            config=parse_config({**CONFIG, **keys}),
            hparams={"global_batch_size": 4},
            trial_id=1,
            experiment_id=1,
            trial_seed=seed,
            distributed=distributed or single_process(),
        )

    return make


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "ignore:non-integer arguments to randrange:DeprecationWarning")  # Keras's
