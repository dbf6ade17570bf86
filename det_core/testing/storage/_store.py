"""The store under test, as all parts of its suite see it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from det_core.interfaces.storage import StorageManager
from det_core.testing._suite import Suite

Opener = Callable[[], StorageManager]


@dataclass(frozen=True)
class Shelf:
    """A store that takes and gives contents where the interface has files."""

    storage: StorageManager
    scratch: Path

    def put(self, storage_id: str, path: str, content: bytes) -> str | None:
        return self.storage.put(storage_id, path, self.file(content))

    def put_all(self, storage_id: str, contents: Mapping[str, bytes]) -> None:
        for path, content in contents.items():
            self.put(storage_id, path, content)

    def get(self, storage_id: str, path: str) -> bytes:
        target = self.file(b"")
        target.unlink()
        self.storage.get(storage_id, path, target)
        return target.read_bytes()

    def get_all(self, storage_id: str) -> dict[str, bytes]:
        """Every file, directories as nothing."""
        names = self.storage.list(storage_id)
        return {name: b"" if name.endswith("/") else self.get(storage_id, name) for name in names}

    def file(self, content: bytes) -> Path:
        """A new file with this content."""
        with tempfile.NamedTemporaryFile(dir=self.scratch, delete=False) as file:
            file.write(content)
        return Path(file.name)

    def files(self, contents: Mapping[str, bytes]) -> dict[str, Path]:
        """Sources for `det_core.storage.save`."""
        return {name: self.scratch if name.endswith("/") else self.file(data) for name, data in contents.items()}


def tells_what_is_stored(storage: StorageManager) -> bool:
    """Whether the store implements `stored`, which is optional."""
    return type(storage).stored is not StorageManager.stored


class StoreSuite(Suite):
    """What a subclass says about its store."""

    longest_part: ClassVar[int] = 255
    """Bytes, as UTF-8, of the longest name between two slashes."""
    longest_path: ClassVar[int] = 900
    """Bytes, as UTF-8, of the longest path inside a checkpoint."""
    newlines: ClassVar[bool] = True
    """Whether names may contain line ends."""
    exact_sizes: ClassVar[bool] = True
    """Whether stored files are as large as their contents; not where they are compressed or encrypted."""
    large_file: ClassVar[int] = 9 << 20
    """Bytes of a file that the store handles in parts, if it ever does so."""
    processes: ClassVar[bool] = True
    """Whether other processes can open the store; ``opener`` then pickles."""

    @pytest.fixture
    def opener(self) -> Opener:
        """Override this. A function without arguments that opens the store, as often as it is called.

        The store is empty for every test. What the fixture cleans up after its ``yield`` is its own affair.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must override the fixture `opener`; expected a function that opens the empty "
            "store, for example: return functools.partial(MyStorage, MyConfig(path=tmp_path))"
        )

    @pytest.fixture
    def broken(self) -> Opener:
        """Override this too if you can: opens a store that cannot be written, such as one without its bucket."""
        pytest.skip("the fixture `broken` is not overridden")

    @pytest.fixture
    def storage(self, opener: Opener) -> StorageManager:
        return opener()

    @pytest.fixture
    def shelf(self, storage: StorageManager, tmp_path: Path) -> Shelf:
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        return Shelf(storage, scratch)
