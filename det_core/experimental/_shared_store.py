"""Tracking store that the SDK's objects belong to."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from enum import Enum
from functools import cache
from html import escape
from typing import Any

from det_core.config import ExperimentConfig
from det_core.config._yaml import dump_yaml
from det_core.core._cluster_info import get_cluster_info
from det_core.errors import DetError
from det_core.home import default_master
from det_core.interfaces.records import ExperimentRecord, searcher_metric
from det_core.interfaces.tracking import TrackingStore
from det_core.json_values import copy_as_json
from det_core.tracking import open_store
from det_core.tracking._open import default_url


def open_shared_store(master: str | None) -> TrackingStore:
    """Return the tracking store that ``master`` names. It is shared by the process and closed when the process exits.

    Args:
        master: URL of a tracking store or a det server. If None or empty, the URL in ``DET_MASTER`` or
            ``DET_MASTER_ADDR``, else that of the task to which this process belongs, else the embedded store.

    Raises:
        TrackingError: as in `det_core.tracking.open_store`.
    """
    task = get_cluster_info()
    named = master or default_master() or (task and task.master_url)
    return _open(named) if named else open_embedded_store()


def open_embedded_store() -> TrackingStore:
    """Return the embedded tracking store, shared and closed as in `open_shared_store`."""
    return _open(default_url())


@cache
def _open(url: str) -> TrackingStore:
    store = open_store(url)
    atexit.register(store.close)
    return store


def config_to_yaml(config: ExperimentConfig) -> str:
    """Return a config as YAML text, as a user could have written it."""
    return dump_yaml(copy_as_json(config.dump()))  # JSON turns secrets to plain strings


class StoredObject:
    """Base class of the SDK's objects, which know the URL of their tracking store."""

    _master: str

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={_shorten(value)!r}" for name, value in self._known_facts().items())
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(str(_shorten(value)))}</td></tr>'
            for name, value in self._known_facts().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"

    @property
    def _store(self) -> TrackingStore:
        return open_shared_store(self._master)

    def _identity(self) -> dict[str, Any]:
        """Return what identifies the object, without reading the store."""
        return {}

    def _facts(self) -> dict[str, Any]:
        """Return what the store knows of the object, in a few names and values."""
        return {}

    def _known_facts(self) -> dict[str, Any]:
        """Return all facts, or only the identity if the store cannot be read or has lost the object."""
        try:
            return self._identity() | self._facts()
        except DetError:
            return self._identity()


def best_value(
    store: TrackingStore, experiment: ExperimentRecord, trial_id: int | None = None
) -> dict[str, dict[str, float]]:
    """Return the best value of the searcher's metric as a fact, or nothing before the first validation."""
    metric, smaller_is_better = searcher_metric(experiment.config)
    best = store.best_validation(experiment.id, metric, smaller_is_better=smaller_is_better, trial_id=trial_id)
    return {"best": {metric: best[0]}} if best else {}


def _shorten(value: Any) -> Any:
    """Return numbers with four significant digits, and states as text."""
    if isinstance(value, Mapping):
        return {name: _shorten(item) for name, item in value.items()}
    if isinstance(value, Enum):
        return value.value
    return float(f"{value:.4g}") if isinstance(value, float) else value
