"""Trials of the suite and the jobs that train them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from det_testing.job_factory import JobFactory as _Jobs
from det_testing.trial_job import JOB_CONFIG, TrialJob

Jobs: TypeAlias = _Jobs[TrialJob]
"""Jobs of one test class."""

METRICS = {"estimator": "validation_loss", "keras": "val_loss"}
"""Framework -> the metric that its trial minimizes."""
AGGREGATED = "{}, aggregated"
"""Name of the job of a framework that aggregates the gradients of two batches."""
_CODE = Path(__file__).with_name("code")


def make_tensorflow_jobs(directory: Path, distributed: Mapping[str, Any], limit: float) -> Jobs:
    """Return the jobs of one test class, which train each framework's trial with and without gradient aggregation.

    Args:
        directory: where the jobs keep their files.
        distributed: the ``distributed`` block of the config.
        limit: seconds that a run may take.
    """
    configs: dict[str, dict[str, Any]] = {}
    for framework, metric in METRICS.items():
        plain = {
            "hyperparameters": {"global_batch_size": 8},
            "distributed": distributed,
            "entrypoint": f"{framework}_def:Trial",
            "searcher": {**JOB_CONFIG["searcher"], "metric": metric},
        }
        configs[framework] = plain
        configs[AGGREGATED.format(framework)] = {**plain, "optimizations": {"aggregation_frequency": 2}}
    return _Jobs(directory, partial(TrialJob, code=_CODE, weights=read_weights, limit=limit), configs)


def read_weights(path: Path) -> dict[str, Any]:
    """Return all floating-point variables of a checkpoint, by name.

    These are the variables of the model and its optimizer, and the aggregated gradients.
    """
    weights = {}
    for index in path.glob("*.index"):
        reader = tf.train.load_checkpoint(str(index.with_suffix("")))
        types = reader.get_variable_to_dtype_map()
        weights.update({name: reader.get_tensor(name) for name, kind in types.items() if kind.is_floating})
    return {name: np.asarray(weights[name]) for name in sorted(weights)}
