"""Selection of the search method by the config."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from det_core.config import ExperimentConfig
from det_core.interfaces.search_method import WORST, SearchMethod
from det_core.plugins import plugin_registry


@contextmanager
def open_search_method(config: ExperimentConfig, context_dir: Path) -> Iterator[SearchMethod]:
    """Open the search method that the config selects, and close it at the end of the block.

    Args:
        config: the config of the experiment.
        context_dir: directory with the user's code.

    Raises:
        PluginError: the method does not exist or cannot be imported.
        DetError: a custom method does not start.
    """
    block = config.searcher
    spec, seed = plugin_registry().find("search_method", block.name), config.reproducibility.experiment_seed
    method = cast("SearchMethod", plugin_registry().call_target(spec, block.options, config.hyperparameters, seed))
    try:
        method.open(context_dir)
        yield method
    finally:
        method.close()


def normalize_searcher_metric(metric: float | None, *, smaller_is_better: bool) -> float:
    """Return a searcher metric in the form that search methods expect, which is finite and smaller for better results.

    Args:
        metric: the metric, or None if it was not reported.
        smaller_is_better: whether smaller values are better.
    """
    if metric is None or not math.isfinite(metric):
        return WORST
    return metric if smaller_is_better else -metric
