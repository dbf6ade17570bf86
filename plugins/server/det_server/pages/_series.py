"""Choice of the metric that a chart draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from det_core.interfaces.tracking import TrackingStore

_FIRST_GROUPS = ("validation", "training")
MAX_METRICS = 5000
"""Maximum number of metrics that a page shows."""
MAX_CHARACTERS = 256 << 10
"""Maximum number of characters of their names and groups together. A page has each of them several times, escaped."""
_LONGEST_NAME = 1000
"""Maximum number of characters of their names."""


@dataclass(frozen=True)
class DrawnSeries:
    """Metric that a chart draws, with those that could be chosen instead.

    Args:
        group: group of the metric, such as ``validation``.
        metric: name of the metric.
        choices: all keys that could be chosen.
    """

    group: str
    metric: str
    choices: Sequence[str]

    @property
    def key(self) -> str:
        """Return the name of the series in URLs, such as ``validation.loss``. Groups have no dots."""
        return f"{self.group}.{self.metric}"


def find_series(store: TrackingStore, trial_ids: Sequence[int], wanted: str, searcher_metric: str) -> DrawnSeries:
    """Return the metric to draw.

    Args:
        store: the tracking store.
        trial_ids: trials whose metrics can be chosen.
        wanted: key of the chosen one, or "" for the searcher's metric.
        searcher_metric: name of the searcher's metric.
    """
    choices = series_keys(sorted_groups(store.metric_names(trial_ids)))
    default = f"validation.{searcher_metric}"
    fallback = default if default in choices or not choices else choices[0]
    group, _, metric = (wanted if wanted in choices else fallback).partition(".")
    return DrawnSeries(group, metric, choices)


def series_keys(names: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the keys of all metrics, such as ``validation.loss``, given the metrics of each group."""
    return [f"{group}.{metric}" for group, metrics in names.items() for metric in metrics]


def sorted_groups(names: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
    """Return groups of metrics with validation and training first. Those beyond what a page can show are left out."""
    order = [group for group in _FIRST_GROUPS if group in names]
    order += sorted(set(names) - set(order))
    metrics = ((group, name) for group in order for name in names[group] if len(name) <= _LONGEST_NAME)
    shown: dict[str, list[str]] = {}
    characters = 0
    for number, (group, name) in enumerate(metrics):
        characters += len(group) + len(name)
        if number == MAX_METRICS or characters > MAX_CHARACTERS:
            break
        shown.setdefault(group, []).append(name)
    return shown
