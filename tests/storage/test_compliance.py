"""The stores of det-core pass the suite that det-core ships."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from det_testing.storage import Damage, Opener, StorageCompliance

from det_core.errors import StorageError
from det_core.storage import ObjectStorage
from det_core.storage.config import DirectoryConfig, SharedFSConfig
from det_core.storage.directory import DirectoryStorage

from .damaged_files import change_files_of
from .memory import MemoryBucket


class TestDirectory(StorageCompliance):
    large_file = (64 << 20) + 12345  # checksums go in parts of 64 MiB

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return partial(DirectoryStorage, DirectoryConfig(container_path=tmp_path / "store"))

    @pytest.fixture
    def broken(self, tmp_path: Path) -> Opener:
        (tmp_path / "file").touch()
        return partial(DirectoryStorage, DirectoryConfig(container_path=tmp_path / "file"))

    @pytest.fixture
    def damage(self, tmp_path: Path) -> Damage:
        return change_files_of(tmp_path / "store")


@pytest.mark.integration
class TestSharedFS(StorageCompliance):
    """The same class as in `TestDirectory`, with another directory."""

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return partial(DirectoryStorage, SharedFSConfig(host_path=tmp_path, storage_path=Path("check points/é")))

    @pytest.fixture
    def broken(self, tmp_path: Path) -> Opener:
        (tmp_path / "file").touch()
        return partial(DirectoryStorage, SharedFSConfig(host_path=tmp_path, storage_path=Path("file")))

    @pytest.fixture
    def damage(self, tmp_path: Path) -> Damage:
        return change_files_of(tmp_path / "check points" / "é")


class TestObjects(StorageCompliance):
    """The engine over any bucket, here with small parts."""

    large_file = 10_000
    processes = False

    @pytest.fixture
    def bucket(self) -> MemoryBucket:
        bucket = MemoryBucket()
        bucket.part_size = 256
        return bucket

    @pytest.fixture
    def opener(self, bucket: MemoryBucket) -> Opener:
        return partial(ObjectStorage, bucket, "some/prefix")

    @pytest.fixture
    def damage(self, bucket: MemoryBucket) -> Damage:
        def change_object(storage_id: str, path: str, change: Callable[[bytes], bytes]) -> None:
            key = f"some/prefix/{storage_id}/{path}"
            content, time = bucket.objects[key]
            bucket.objects[key] = change(content), time

        return change_object

    @pytest.fixture
    def broken(self) -> Opener:
        def refuse(method: str, key: str) -> None:
            raise StorageError(f"{method} {key}: permission denied")

        bucket = MemoryBucket()
        bucket.before = refuse
        return partial(ObjectStorage, bucket)
