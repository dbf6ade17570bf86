"""One emulator for all tests, and a bucket that each test finds empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from det_storage_gcs._bucket import GCSBucket
from det_storage_gcs._config import GCSConfig

from det_core.plugins import registry

from .emulator import emulator
from .tap import Tap, tap

BUCKET = "checkpoints"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither credentials nor addresses of whoever runs the tests."""
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
    registry.cache_clear()


@pytest.fixture(scope="session")
def _emulator() -> Iterator[str]:
    with emulator(BUCKET) as address:
        yield address


@pytest.fixture
def server(_emulator: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The emulator's address, in the environment too, with one empty bucket."""
    urlopen(f"{_emulator}/wipe?keep-buckets=1", timeout=30).close()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", _emulator)
    return _emulator


@pytest.fixture
def spy(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tap]:
    """Between the client and the emulator."""
    with tap(server) as between:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", between.address)
        yield between


@pytest.fixture
def make_bucket() -> Callable[..., GCSBucket]:
    def make(**options: object) -> GCSBucket:
        return GCSBucket(GCSConfig.model_validate({"bucket": BUCKET, "prefix": "runs", **options}))

    return make
