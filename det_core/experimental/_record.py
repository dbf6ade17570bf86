"""The record behind the objects of the SDK."""

from __future__ import annotations

import atexit
import json
import os
from functools import cache

import yaml

from det_core.config import ExperimentConfig
from det_core.core._info import get_cluster_info
from det_core.home import home
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store

_VARIABLES = ("DET_MASTER", "DET_MASTER_ADDR")


def open_record(master: str | None) -> TrackingStore:
    """The record that ``master`` names: one for all of this process, closed with it.

    Args:
        master: the URL of a record; None or empty: that of ``DET_MASTER``, else of ``DET_MASTER_ADDR``, else that of
            the task which this process belongs to, else the embedded one.

    Raises:
        TrackingError: as `det_core.tracking.open_store`.
    """
    task = get_cluster_info()
    named = next(filter(None, (master, *map(os.environ.get, _VARIABLES), task and task.master_url)), None)
    return _open(named) if named else open_embedded()


def open_embedded() -> TrackingStore:
    """The embedded record, likewise."""
    return _open(f"sqlite:///{home() / 'det.db'}")


@cache
def _open(url: str) -> TrackingStore:
    store = open_store(url)
    atexit.register(store.close)
    return store


def as_yaml(config: ExperimentConfig) -> str:
    """The text that somebody could have written for it."""
    return yaml.safe_dump(json.loads(json.dumps(config.dump())), sort_keys=False)  # plain text of secrets, too


class Recorded:
    """What all objects of the SDK have: the URL of the record that they are in."""

    _master: str

    @property
    def _store(self) -> TrackingStore:
        return open_record(self._master)
