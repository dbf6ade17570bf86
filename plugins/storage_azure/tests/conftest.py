"""Fixtures that start one emulator for all tests, and give each test a container of its own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import ContainerClient
from det_storage_azure._config import AzureConfig

from det_core.plugins import plugin_registry

from .azurite import KEY, Azurite, running_azurite


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the settings of whoever runs the tests."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "det-home"))
    for name in os.environ:
        if name.startswith("AZURE_") or name.lower() in ("http_proxy", "https_proxy"):
            monkeypatch.delenv(name)
    plugin_registry.cache_clear()


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with running_azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def container(azurite: Azurite) -> Iterator[ContainerClient]:
    """Create a container for the test."""
    with ContainerClient(azurite.account_url, f"test-{uuid.uuid4().hex[:16]}", KEY) as client:
        client.create_container()
        yield client


@pytest.fixture
def make_config(azurite: Azurite, container: ContainerClient) -> Callable[..., AzureConfig]:
    """Return a function that makes a config block of the test's container."""

    def make(**keys: Any) -> AzureConfig:
        given = {"container": container.container_name, "account_url": azurite.account_url, "credential": KEY}
        return AzureConfig.model_validate({**given, "prefix": "runs", "timeout": 20, **keys})

    return make
