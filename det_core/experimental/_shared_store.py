"""Tracking store that the SDK's objects belong to."""

from __future__ import annotations

import atexit
import os
from functools import cache

from det_core.config import ExperimentConfig
from det_core.config._yaml import dump_yaml
from det_core.core._cluster_info import get_cluster_info
from det_core.home import home_directory
from det_core.interfaces.tracking import TrackingStore
from det_core.json_values import copy_as_json
from det_core.tracking import open_store

_VARIABLES = ("DET_MASTER", "DET_MASTER_ADDR")


def open_shared_store(master: str | None) -> TrackingStore:
    """Return the tracking store that ``master`` names. It is shared by the process and closed when the process exits.

    Args:
        master: URL of a tracking store. If None or empty, the URL in ``DET_MASTER`` or ``DET_MASTER_ADDR``, else that
            of the task to which this process belongs, else the embedded store.

    Raises:
        TrackingError: as in `det_core.tracking.open_store`.
    """
    task = get_cluster_info()
    named = next(filter(None, (master, *map(os.environ.get, _VARIABLES), task and task.master_url)), None)
    return _open(named) if named else open_embedded_store()


def open_embedded_store() -> TrackingStore:
    """Return the embedded tracking store, shared and closed as in `open_shared_store`."""
    return _open(f"sqlite:///{home_directory() / 'det.db'}")


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

    @property
    def _store(self) -> TrackingStore:
        return open_shared_store(self._master)
