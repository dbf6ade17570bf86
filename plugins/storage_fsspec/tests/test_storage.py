"""Compliance suite for stores, run with local files, with SFTP and with a file system that only writes whole files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from det_storage_fsspec._config import FsspecConfig
from det_storage_fsspec._storage import FsspecStorage
from det_testing.storage import Damage, Opener, StorageCompliance

Make = Callable[..., FsspecConfig]


class TestLocal(StorageCompliance):
    longest_part = 255 - len(".det-upload-01234567")

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return functools.partial(FsspecStorage, FsspecConfig(url=f"file://{tmp_path}/stored"))

    @pytest.fixture
    def broken(self, tmp_path: Path) -> Opener:
        (tmp_path / "file").touch()
        return functools.partial(FsspecStorage, FsspecConfig(url=f"file://{tmp_path}/file"), ())

    @pytest.fixture
    def damage(self, tmp_path: Path) -> Damage:
        def change(storage_id: str, path: str, change: Callable[[bytes], bytes]) -> None:
            file = tmp_path / "stored" / storage_id / path
            file.write_bytes(change(file.read_bytes()))

        return change


@pytest.mark.integration
class TestSftp(TestLocal):
    @pytest.fixture
    def opener(self, make_config: Make) -> Opener:
        return functools.partial(FsspecStorage, make_config())

    @pytest.fixture
    def broken(self, make_config: Make, tmp_path: Path) -> Opener:
        (tmp_path / "file").touch()
        return functools.partial(FsspecStorage, make_config("file"), ())
