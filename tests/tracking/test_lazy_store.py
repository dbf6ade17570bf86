"""Tracking stores that are opened on first use."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_core.errors import StoreUnsuitable
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_lazy_store, open_store


def test_the_first_use_opens_the_same_store(store: TrackingStore) -> None:
    experiment = store.create_experiment(config={})
    with open_lazy_store(store.url) as later:
        assert isinstance(later, TrackingStore)
        assert later.url == store.url
        assert later.cluster_id == store.cluster_id
        assert later.experiment(experiment.id) == experiment


def test_closing_an_unused_store_creates_nothing(tmp_path: Path) -> None:
    open_lazy_store(f"sqlite:///{tmp_path}/det.db").close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_host_raises_an_error(tmp_path: Path) -> None:
    later = open_lazy_store(f"sqlite:///{tmp_path}/det.db")
    with pytest.raises(StoreUnsuitable, match=r"report on the chief \(rank 0\) only"):
        later.experiments()
    assert list(tmp_path.iterdir()) == []
    open_store(later.url).close()
    assert later.experiments() == []  # the file exists now
    later.close()
