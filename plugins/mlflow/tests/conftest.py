"""Fixtures that start one MLflow server for all tests, and observers that talk to it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from det_testing.proxy import FaultyProxy

from det_core.plugins import plugin_registry

from .observation import Observation
from .server import MLflowServer, running_mlflow


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the settings of whoever runs the tests."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "det-home"))
    for name in os.environ:
        if name.startswith("MLFLOW") or name.lower() in ("http_proxy", "https_proxy"):
            monkeypatch.delenv(name)
    plugin_registry.cache_clear()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MLflowServer]:
    with running_mlflow(tmp_path_factory.mktemp("mlflow")) as server:
        yield server


@pytest.fixture
def observe(server: MLflowServer) -> Callable[..., Observation]:
    """Return a function that opens an observer. All of a test belong to the same experiment."""
    cluster_id, name = uuid.uuid4().hex, f"digits-{uuid.uuid4().hex[:8]}"

    def open_observer(
        place: str = "worker", address: str = server.address, trial_id: int = 3, **options: object
    ) -> Observation:
        return Observation(server, place, cluster_id, name, trial_id, {"tracking_uri": address, **options})

    return open_observer


@pytest.fixture
def proxy(server: MLflowServer) -> Iterator[FaultyProxy]:
    """Put a proxy in front of the server."""
    address = urlsplit(server.address)
    assert address.hostname and address.port
    with closing(FaultyProxy(address.hostname, address.port)) as between:
        yield between
