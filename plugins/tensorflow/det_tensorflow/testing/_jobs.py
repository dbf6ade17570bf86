"""The trials of the suite, and all jobs that train them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from det_core.testing._job import CONFIG, Job
from det_core.testing._jobs import Jobs as _Jobs

Jobs: TypeAlias = _Jobs[Job]

METRICS = {"estimator": "validation_loss", "keras": "val_loss"}
"""Framework -> what its trial minimizes."""
AGGREGATED = "{}, aggregated"
_CODE = Path(__file__).with_name("code")


def jobs_of(directory: Path, distributed: Mapping[str, Any], limit: float) -> Jobs:
    """Those of one class of tests: a trial of each framework, and the same with gradients added up.

    Args:
        distributed: the block of the config.
    """
    configs: dict[str, dict[str, Any]] = {}
    for framework, metric in METRICS.items():
        plain = {
            "hyperparameters": {"global_batch_size": 8},
            "distributed": distributed,
            "entrypoint": f"{framework}_def:Trial",
            "searcher": {**CONFIG["searcher"], "metric": metric},
        }
        configs[framework] = plain
        configs[AGGREGATED.format(framework)] = {**plain, "optimizations": {"aggregation_frequency": 2}}
    return _Jobs(directory, partial(Job, code=_CODE, weights=read_weights, limit=limit), configs)


def read_weights(path: Path) -> dict[str, Any]:
    """All numbers of a checkpoint that training changes: those of the model, its optimizer, and what was added up."""
    weights = {}
    for index in path.glob("*.index"):
        reader = tf.train.load_checkpoint(str(index.with_suffix("")))
        types = reader.get_variable_to_dtype_map()
        weights.update({name: reader.get_tensor(name) for name, kind in types.items() if kind.is_floating})
    return {name: np.asarray(weights[name]) for name in sorted(weights)}
