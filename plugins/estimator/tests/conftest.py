"""Fixtures. Everything runs on one thread, because sums depend on their number and small models are faster with one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

for variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"  # before TensorFlow is imported, and for child processes
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from det_estimator import EstimatorTrial, EstimatorTrialContext  # noqa: E402
from det_testing.framework.trial_harness import TrialHarness  # noqa: E402

CONFIG: dict[str, Any] = {
    "name": "test",
    "entrypoint": "model_def:Trial",
    "hyperparameters": {"global_batch_size": 4},
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 6}},
    "scheduling_unit": 4,
    "resources": {"slots_per_trial": 0},
}


@pytest.fixture(autouse=True)
def _model_directories(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the directories of models, which TensorFlow does not remove, among the files of the tests."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("models")))


@pytest.fixture
def make_laboratory(tmp_path: Path) -> Iterator[Callable[..., TrialHarness]]:
    """Function that makes a harness, where a trial class trains as under a runner with these keys in the config."""
    with ExitStack() as ending:

        def make(trial_class: type[EstimatorTrial], **keys: Any) -> TrialHarness:
            config = {**CONFIG, **keys}
            made = TrialHarness(tmp_path, "det_estimator._run:run_trial", trial_class, config, lambda _: None)
            ending.enter_context(made.store)
            return made

        yield make


@pytest.fixture
def context() -> EstimatorTrialContext:
    """A context without training."""
    return EstimatorTrialContext.from_config(CONFIG)


@pytest.fixture
def graph() -> Iterator[Any]:
    """An empty default graph."""
    with tf.Graph().as_default() as made:
        tf.compat.v1.set_random_seed(3)
        yield made
