"""From a config to its search method."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from det_core.config import ExperimentConfig
from det_core.interfaces.search_method import WORST, SearchMethod
from det_core.plugins import registry


@contextmanager
def open_method(config: ExperimentConfig, context_dir: Path) -> Iterator[SearchMethod]:
    """The search method that the config selects, before its `start`; closed in the end.

    Raises:
        PluginError: it cannot be imported.
        DetError: a method of the user's own does not start.
    """
    block = config.searcher
    spec, seed = registry().find("search_method", block.name), config.reproducibility.experiment_seed
    method = cast("SearchMethod", registry().call_target(spec, block.options, config.hyperparameters, seed))
    try:
        method.open(context_dir)
        yield method
    finally:
        method.close()


def comparable(metric: float | None, *, smaller_is_better: bool) -> float:
    """A searcher metric as search methods get it: finite, and smaller is better."""
    if metric is None or not math.isfinite(metric):
        return WORST
    return metric if smaller_is_better else -metric
