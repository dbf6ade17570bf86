"""The plugin passes det's compliance suite.

To run it, type ``pip install 'det-core[testing]'``, then ``pytest test_gzip.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from det_gzip import GzipConfig, GzipStorage
from det_testing.storage import Damage, Opener, StorageCompliance


class TestGzip(StorageCompliance):
    exact_sizes = False  # list returns the sizes of compressed files
    longest_part = 219  # while a file is written, its name is 36 bytes longer

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return functools.partial(GzipStorage, GzipConfig(path=tmp_path / "packed"))

    @pytest.fixture
    def broken(self, tmp_path: Path) -> Opener:
        (tmp_path / "file").touch()
        return functools.partial(GzipStorage, GzipConfig(path=tmp_path / "file"))

    @pytest.fixture
    def damage(self, tmp_path: Path) -> Damage:
        def change_file(storage_id: str, path: str, change: Callable[[bytes], bytes]) -> None:
            file = tmp_path / "packed" / storage_id / f"{path}.gz"
            file.write_bytes(change(file.read_bytes()))

        return change_file
