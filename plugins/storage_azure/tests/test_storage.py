"""Compliance suite for stores, run with Azurite, and the layout of blobs."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from det_storage_azure._config import AzureConfig
from det_storage_azure._container import open_azure_storage

from det_core.testing.storage import Opener, StorageCompliance

pytestmark = pytest.mark.integration

Make = Callable[..., AzureConfig]


class TestAzure(StorageCompliance):
    large_file = (16 << 20) + 12345

    @pytest.fixture
    def opener(self, make_config: Make) -> Opener:
        return functools.partial(open_azure_storage, make_config())

    @pytest.fixture
    def broken(self, make_config: Make) -> Opener:
        return functools.partial(open_azure_storage, make_config(container="no-such-container"))
