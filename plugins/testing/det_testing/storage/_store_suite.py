"""Attributes and fixtures that all parts of the storage suite share."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from det_core.interfaces.storage import StorageManager
from det_testing.suite import ComplianceSuite

Opener = Callable[[], StorageManager]
"""Function that opens the store under test."""
Damage = Callable[[str, str, Callable[[bytes], bytes]], object]
"""Function that takes a storage id, a path and a change, and applies the change to the bytes that hold this file."""


@dataclass(frozen=True)
class Shelf:
    """A store with methods that take and return contents instead of files."""

    storage: StorageManager
    scratch: Path

    def put(self, storage_id: str, path: str, content: bytes) -> str | None:
        """Store a file with this content."""
        return self.storage.put(storage_id, path, self.file(content))

    def put_all(self, storage_id: str, contents: Mapping[str, bytes]) -> None:
        """Store several files."""
        for path, content in contents.items():
            self.put(storage_id, path, content)

    def get(self, storage_id: str, path: str) -> bytes:
        """Return the content of a stored file."""
        target = self.file(b"")
        target.unlink()
        self.storage.get(storage_id, path, target)
        return target.read_bytes()

    def get_all(self, storage_id: str) -> dict[str, bytes]:
        """Return the contents of all files. Directories have empty contents."""
        names = self.storage.list(storage_id)
        return {name: b"" if name.endswith("/") else self.get(storage_id, name) for name in names}

    def file(self, content: bytes) -> Path:
        """Create a file with this content."""
        with tempfile.NamedTemporaryFile(dir=self.scratch, delete=False) as file:
            file.write(content)
        return Path(file.name)

    def files(self, contents: Mapping[str, bytes]) -> dict[str, Path]:
        """Create source files for `det_core.storage.save_checkpoint`."""
        return {name: self.scratch if name.endswith("/") else self.file(data) for name, data in contents.items()}


def implements_stored(storage: StorageManager) -> bool:
    """Return whether the store implements `StorageManager.stored`, which is optional."""
    return type(storage).stored is not StorageManager.stored


class StoreSuite(ComplianceSuite):
    """Attributes that describe the store, set by subclasses."""

    longest_part: ClassVar[int] = 255
    """Maximum length of a name between two slashes, in bytes of UTF-8."""
    longest_path: ClassVar[int] = 900
    """Maximum length of a path in a checkpoint, in bytes of UTF-8."""
    newlines: ClassVar[bool] = True
    """Whether names may contain line ends."""
    exact_sizes: ClassVar[bool] = True
    """Whether stored files are as large as their contents. False if they are compressed or encrypted."""
    large_file: ClassVar[int] = 9 << 20
    """Size in bytes of a file that is large enough for the store to handle in parts, if it ever does so."""
    processes: ClassVar[bool] = True
    """Whether other processes can open the store. ``opener`` must then be picklable."""

    @pytest.fixture
    def opener(self) -> Opener:
        """Return a function without arguments that opens the store. Subclasses must override this fixture.

        The function may be called several times. The store is empty at the start of every test. The fixture may clean
        up after its ``yield``.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must override the fixture `opener`; expected a function that opens the empty "
            "store, for example: return functools.partial(MyStorage, MyConfig(path=tmp_path))"
        )

    @pytest.fixture
    def broken(self) -> Opener:
        """Return a function that opens a store to which nothing can be written, such as one without its bucket.

        Subclasses should override this fixture if possible.
        """
        pytest.skip("the fixture `broken` is not overridden")

    @pytest.fixture
    def damage(self) -> Damage:
        """Return a function that changes the bytes of a stored file on the medium, without the store.

        Subclasses should override this fixture if possible.
        """
        pytest.skip("the fixture `damage` is not overridden")

    @pytest.fixture
    def storage(self, opener: Opener) -> StorageManager:
        """Return the opened store."""
        return opener()

    @pytest.fixture
    def shelf(self, storage: StorageManager, tmp_path: Path) -> Shelf:
        """Return the opened store as a `Shelf`."""
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        return Shelf(storage, scratch)
