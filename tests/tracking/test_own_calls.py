"""Calls of the tracking store that a process executes itself, on a store that the first of them opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_core.errors import StoreUnsuitable
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store
from det_core.tracking._open import open_existing_store
from det_core.tracking.remote import open_remote_store
from det_core.tracking.remote._remote_store import OwnCalls


def later_store(url: str) -> TrackingStore:
    calls = OwnCalls(lambda: (open_existing_store(url), None))
    return open_remote_store(calls.call, url=url, close=calls.close)


def test_the_first_call_opens_the_store(store: TrackingStore) -> None:
    experiment = store.create_experiment(config={})
    with later_store(store.url) as later:
        assert later.url == store.url
        assert later.cluster_id == store.cluster_id
        assert later.experiment(experiment.id) == experiment


def test_closing_an_unused_store_creates_nothing(tmp_path: Path) -> None:
    later_store(f"sqlite:///{tmp_path}/det.db").close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_host_raises_an_error(tmp_path: Path) -> None:
    later = later_store(f"sqlite:///{tmp_path}/det.db")
    with pytest.raises(StoreUnsuitable, match=r"report on the chief \(rank 0\) only"):
        later.experiments()
    assert list(tmp_path.iterdir()) == []
    open_store(later.url).close()
    assert later.experiments() == []  # the file exists now
    later.close()
