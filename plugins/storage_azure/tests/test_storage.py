"""Compliance suite for stores, run with Azurite, and the layout of blobs."""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient
from det_storage_azure._config import AzureConfig
from det_storage_azure._container import open_azure_storage
from det_testing.storage import Opener, StorageCompliance

from det_core import storage

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


def test_a_container_that_the_original_wrote_can_be_restored(
    make_config: Make, container: ContainerClient, tmp_path: Path
) -> None:
    storage_id, metadata = str(uuid.uuid4()), {"steps_completed": 7, "framework": "torch"}
    files = {
        "state_dict.pth": b"weights",
        "code/model_def.py": b"x = 1\n",
        "metadata.json": json.dumps(metadata).encode(),
    }
    for path, content in {**files, "code/": b"", "empty/": b""}.items():
        container.upload_blob(f"{storage_id}/{path}", content)
    manager = open_azure_storage(make_config(prefix=""))
    with pytest.warns(UserWarning, match="no checksums"):
        storage.restore_checkpoint(manager, storage_id, tmp_path / "out")
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")}
    assert found == {*files, "code", "empty"}
    assert manager.stored().keys() == {storage_id}


def test_blobs_are_named_prefix_uuid_path(make_config: Make, container: ContainerClient, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    manager = open_azure_storage(make_config(prefix="/a/b/"))
    manager.put("id", "f%5C\\g", tmp_path / "f")
    manager.put("id", "dir/", tmp_path)
    assert {blob.name: blob.size for blob in container.list_blobs()} == {"a/b/id/dir/": 0, "a/b/id/f%255C%5Cg": 1}
    assert manager.list("id") == {"dir/": 0, "f%5C\\g": 1}
    assert manager.location("id").endswith(f"/{container.container_name}/a/b/id")
