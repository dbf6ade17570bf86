"""From a checkpoint to files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from det_core.errors import CheckpointCorrupt, CheckpointNotFound
from det_core.interfaces.storage import StorageManager
from det_core.storage._checksum import Entry, checksum
from det_core.storage._manifest import METADATA_FILE, Manifest
from det_core.storage._parallel import in_parallel
from det_core.storage._save import Selector


@dataclass(frozen=True)
class StoredCheckpoint:
    """A complete checkpoint in a store. Made by `find`."""

    store: StorageManager
    storage_id: str
    manifest: Manifest
    text: bytes
    """``metadata.json``."""

    @property
    def metadata(self) -> dict[str, Any]:
        """The user's part."""
        return dict(self.manifest.metadata)

    def names(self) -> list[str]:
        """What can be fetched beside ``metadata.json``."""
        listed = self.store.list(self.storage_id) if self.manifest.files is None else self.manifest.files
        return [name for name in listed if name != METADATA_FILE]

    def fetch(self, names: Collection[str], directory: Path, *, verify: bool = True) -> None:
        """Copy files into a directory, which is created; ``metadata.json`` is always among them, and comes last.

        Raises:
            CheckpointCorrupt: a file is missing or, with ``verify``, differs from the manifest; names it.
        """
        self._place(self._get, names, directory, verify=verify)

    def link(self, names: Collection[str], directory: Path, stored: Path, *, verify: bool = True) -> None:
        """As `fetch`, but symbolic links to the files in the store's own directory, verified where they lie."""

        def link(name: str, target: Path) -> None:
            target.symlink_to(stored / name)

        self._place(link, names, directory, verify=verify)

    def _place(
        self, place: Callable[[str, Path], str | None], names: Collection[str], directory: Path, *, verify: bool
    ) -> None:
        targets = {name: _inside(directory, name) for name in names}
        directory.mkdir(parents=True, exist_ok=True)
        for parent in {target if name.endswith("/") else target.parent for name, target in targets.items()}:
            parent.mkdir(parents=True, exist_ok=True)

        def one(name: str) -> None:
            crc = place(name, targets[name])
            if verify and self.manifest.files is not None:
                self._verify(name, targets[name], crc, self.manifest.files[name])

        files = (name for name in targets if not name.endswith("/"))
        in_parallel(one, files, threads=self.store.transfers)
        (directory / METADATA_FILE).write_bytes(self.text)

    def _get(self, name: str, target: Path) -> str | None:
        try:
            return self.store.get(self.storage_id, name, target)
        except FileNotFoundError as error:
            raise self._lacks(name) from error

    def _verify(self, name: str, path: Path, crc: str | None, expected: Entry) -> None:
        try:
            found = checksum(path) if crc is None else Entry(path.stat().st_size, crc)
        except FileNotFoundError as error:
            raise self._lacks(name) from error
        if found != expected:
            raise CheckpointCorrupt(
                f"checkpoint {self.storage_id}: {name} should have {expected.size} bytes and crc32c {expected.crc32c}, "
                f"found {found.size} bytes and {found.crc32c}; restore an older checkpoint"
            )

    def _lacks(self, name: str) -> CheckpointCorrupt:
        return CheckpointCorrupt(
            f"checkpoint {self.storage_id} lacks {name}, which its manifest lists; restore an older checkpoint"
        )


def find(store: StorageManager, storage_id: str) -> StoredCheckpoint:
    """The complete checkpoint under this id.

    Raises:
        CheckpointNotFound: there is none.
        CheckpointCorrupt: its ``metadata.json`` cannot be read.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, METADATA_FILE)
        try:
            store.get(storage_id, METADATA_FILE, path)
        except FileNotFoundError as error:
            raise CheckpointNotFound(f"there is no complete checkpoint {storage_id} in this storage") from error
        text = path.read_bytes()
    return StoredCheckpoint(store, storage_id, Manifest.from_json(text, storage_id), text)


def metadata(store: StorageManager, storage_id: str) -> dict[str, Any]:
    """The user's metadata. Raises as `find` does."""
    return find(store, storage_id).metadata


def restore(
    store: StorageManager, storage_id: str, directory: Path, *, selector: Selector | None = None, verify: bool = True
) -> None:
    """Copy the checkpoint into a directory, which is created, and verify every file.

    Args:
        selector: takes paths as in the manifest; those it rejects are not fetched. ``metadata.json`` always is.
        verify: compare sizes and checksums with the manifest.

    Raises:
        CheckpointNotFound: there is no complete checkpoint under this id.
        CheckpointCorrupt: a file is missing or differs from the manifest; names it.
    """
    stored = find(store, storage_id)
    stored.fetch([name for name in stored.names() if selector is None or selector(name)], directory, verify=verify)


def _inside(directory: Path, name: str) -> Path:
    if name.startswith("/") or ".." in name.split("/"):
        raise CheckpointCorrupt(f"the manifest names {name!r}, which is outside the checkpoint")
    return directory / name
