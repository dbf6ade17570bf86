"""Compliance suite for stores, run with the emulator."""

from __future__ import annotations

import functools

import pytest
from det_storage_gcs._bucket import open_gcs_storage
from det_storage_gcs._config import GCSConfig
from det_testing.storage import Opener, StorageCompliance

pytestmark = pytest.mark.integration


class TestGCS(StorageCompliance):
    newlines = False  # the service refuses them, the emulator does not
    longest_part = 900

    @pytest.fixture
    def opener(self, server: str) -> Opener:
        return functools.partial(open_gcs_storage, GCSConfig(bucket="checkpoints", prefix="runs"))

    @pytest.fixture
    def broken(self, server: str) -> Opener:
        return functools.partial(open_gcs_storage, GCSConfig(bucket="nowhere", prefix="runs"))
