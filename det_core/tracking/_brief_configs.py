"""Configs of experiments for lists, which keep few values of one that is large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from det_core.interfaces.records import LONGEST_BRIEF, Shortened, searcher_metric
from det_core.tracking._deferred_json import DeferredJson, load_json_value


def brief_config(text: str) -> Mapping[str, Any]:
    """Return a config, or the searcher's metric, the project and the workspace of one that is large.

    Args:
        text: the config as JSON.
    """
    if len(text) <= LONGEST_BRIEF:
        return DeferredJson(text)
    config = load_json_value(text)
    metric, smaller_is_better = searcher_metric(config)
    searcher = {"metric": metric, "smaller_is_better": smaller_is_better}
    places = {name: str(config.get(name) or "")[:LONGEST_BRIEF] for name in ("project", "workspace")}
    return Shortened(searcher=searcher, **places)
