"""Fixtures that start one emulator for all tests, and empty its bucket before each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from det_storage_gcs._bucket import GCSBucket
from det_storage_gcs._config import GCSConfig
from gcp_storage_emulator.server import Server

from det_core.plugins import plugin_registry

from .emulator import emulator
from .tap import Tap, tap

BUCKET = "checkpoints"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the credentials and addresses of whoever runs the tests."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "det-home"))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for name in (
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_PROJECT",
        "STORAGE_EMULATOR_HOST",
        "HTTP_PROXY",
        "http_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    plugin_registry.cache_clear()


@pytest.fixture(scope="session")
def _emulator() -> Iterator[tuple[str, Server]]:
    with emulator(BUCKET) as started:
        yield started


@pytest.fixture
def server(_emulator: tuple[str, Server], monkeypatch: pytest.MonkeyPatch) -> str:
    """Empty the emulator's bucket, and return the emulator's address, which is also put into the environment."""
    address, running = _emulator
    running.wipe(keep_buckets=True)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
    return address


@pytest.fixture
def spy(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tap]:
    """Put a tap between the client and the emulator, and yield it."""
    with tap(server) as between:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", between.address)
        yield between


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tap]:
    """Yield a tap without an emulator, for tests that answer all requests themselves."""
    with tap() as between:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", between.address)
        yield between


@pytest.fixture
def make_bucket() -> Callable[..., GCSBucket]:
    def make(**options: object) -> GCSBucket:
        return GCSBucket(GCSConfig.model_validate({"bucket": BUCKET, "prefix": "runs", **options}))

    return make
