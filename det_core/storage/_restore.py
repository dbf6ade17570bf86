"""Restoring of checkpoints from a store to local files."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from det_core.disk_errors import explain_disk_error
from det_core.errors import CheckpointCorrupt, CheckpointNotFound, StorageError
from det_core.interfaces.storage import Progress, Selector, StorageManager
from det_core.local_files.checksum import Entry, checksum_file
from det_core.local_files.parallel import in_parallel
from det_core.scratch import scratch_directory
from det_core.storage._directory_tree import is_inside, parent_directories, refuse_outside
from det_core.storage._manifest import METADATA_FILE, Manifest

_MORE_TRIES = 2
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Checkpoint ids that det generates. Users may keep other directories next to them."""


@dataclass(frozen=True)
class StoredCheckpoint:
    """Complete checkpoint in a store, as found by `find_checkpoint`."""

    storage: StorageManager
    """Store that holds the checkpoint."""
    storage_id: str
    """Id of the checkpoint in the store."""
    manifest: Manifest
    """Parsed contents of ``metadata.json``."""
    text: bytes
    """Contents of ``metadata.json``."""

    @property
    def metadata(self) -> dict[str, Any]:
        """The user's metadata."""
        return dict(self.manifest.metadata)

    def names(self) -> list[str]:
        """Return the paths of all files, except ``metadata.json``, and of all directories, which end in ``/``."""
        parents = {parent for name in self._sizes for parent in parent_directories(name)}  # old manifests lack them
        return sorted({*self._sizes, *parents} - {METADATA_FILE})

    def fetch(
        self, names: Collection[str], directory: Path, *, verify: bool = True, progress: Progress | None = None
    ) -> None:
        """Copy files into a directory, which is created if needed. ``metadata.json`` is always copied, and comes last.

        The directory keeps its previous files until all new ones are complete and verified.

        Args:
            names: stored paths to copy.
            directory: the target directory.
            verify: whether to compare sizes and checksums with the manifest.
            progress: called from any thread with the number of bytes that were just copied.

        Raises:
            CheckpointCorrupt: a file is missing or, with ``verify``, differs from the manifest. The error names it.
            StorageError: the directory belongs to a stored checkpoint, or cannot be written.
        """
        self._refuse_stored(directory)
        with _writing(directory):
            self._fetch(self._targets(names, directory), directory, verify=verify, progress=progress)

    def _fetch(self, targets: dict[str, Path], directory: Path, *, verify: bool, progress: Progress | None) -> None:
        with tempfile.TemporaryDirectory(prefix=".det-download-", dir=directory) as scratch:
            copies = {name: Path(scratch, str(number)) for number, name in enumerate(targets)}
            found = self._get(copies, progress)
            wrong = self._differing(found) if verify else {}
            for _ in range(_MORE_TRIES if wrong and self.storage.local_path(self.storage_id) is None else 0):
                again = {name: copies[name] for name in wrong}  # the network may have corrupted the data
                wrong = self._differing(self._get(again, None))
            self._check(wrong)
            copies[METADATA_FILE], targets[METADATA_FILE] = Path(scratch, METADATA_FILE), directory / METADATA_FILE
            copies[METADATA_FILE].write_bytes(self.text)
            if targets[METADATA_FILE].is_file() and targets[METADATA_FILE].read_bytes() != self.text:
                targets[METADATA_FILE].unlink()  # because it describes the previous files
            for name, target in targets.items():
                copies[name].replace(target)

    def link(self, names: Collection[str], directory: Path, stored: Path, *, verify: bool = True) -> None:
        """Create symbolic links to the files in the store's own directory instead of copies as in `fetch`.

        Args:
            names: stored paths to link.
            directory: the directory of the links.
            stored: the checkpoint's directory in the store.
            verify: whether to compare sizes and checksums of the stored files with the manifest.

        Raises:
            CheckpointCorrupt: a file is missing or, with ``verify``, differs from the manifest. The error names it.
            StorageError: a stored file cannot be read, or the directory cannot be written.
        """
        with _writing(directory):
            targets = self._targets(names, directory)
        found: dict[str, Entry] = {}

        def link(name: str) -> None:
            refuse_outside(stored, name)
            if verify:
                with self._present(name):
                    found[name] = checksum_file(stored / name)
            with _writing(directory):
                targets[name].symlink_to(stored / name)

        in_parallel(link, targets, threads=self.storage.transfers)
        self._check(self._differing(found))
        (directory / METADATA_FILE).write_bytes(self.text)

    @cached_property
    def _sizes(self) -> dict[str, int]:
        if self.manifest.files is None:
            return self.storage.list(self.storage_id)
        return {name: entry.size for name, entry in self.manifest.files.items()}

    def _refuse_stored(self, directory: Path) -> None:
        """Raise if the directory belongs to this or another checkpoint of the store."""
        local = self.storage.local_path(self.storage_id)
        base = None if local is None else Path(os.path.realpath(local.parent))
        real = Path(os.path.realpath(directory))
        if base is None or real == base or not real.is_relative_to(base):
            return
        storage_id = real.relative_to(base).parts[0]
        if storage_id == self.storage_id or (_UUID.fullmatch(storage_id) and (base / storage_id).exists()):
            raise StorageError(
                f"{directory} is where the storage keeps checkpoint {storage_id}; download to another directory, "
                "or read the files in place with restore_path()"
            )

    def _targets(self, names: Collection[str], directory: Path) -> dict[str, Path]:
        """Return the target of each file, and create all directories."""
        targets = {name: _inside(directory, name) for name in names}
        directory.mkdir(parents=True, exist_ok=True)
        for parent in {target if name.endswith("/") else target.parent for name, target in targets.items()}:
            parent.mkdir(parents=True, exist_ok=True)
        return {name: target for name, target in targets.items() if not name.endswith("/")}

    def _get(self, targets: Mapping[str, Path], progress: Progress | None) -> dict[str, Entry]:
        sized = {name: (target, self._sizes[name]) for name, target in targets.items()}
        try:
            return self.storage.get_files(self.storage_id, sized, progress)
        except FileNotFoundError as error:
            raise self._lacks(str(error)) from error

    def _differing(self, found: Mapping[str, Entry]) -> dict[str, Entry]:
        expected = self.manifest.files
        return {} if expected is None else {name: entry for name, entry in found.items() if entry != expected[name]}

    def _check(self, wrong: Mapping[str, Entry]) -> None:
        for name, found in wrong.items():
            expected = (self.manifest.files or {})[name]
            raise CheckpointCorrupt(
                f"checkpoint {self.storage_id}: {name} should have {expected.size} bytes and crc32c {expected.crc32c}, "
                f"found {found.size} bytes and {found.crc32c}; restore an older checkpoint"
            )

    @contextmanager
    def _present(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise self._lacks(name) from error
        except OSError as error:
            raise explain_disk_error(error) or StorageError(
                f"cannot read {name} of checkpoint {self.storage_id}: {error.strerror or error}; "
                "fix the permissions, or restore an older checkpoint"
            ) from error

    def _lacks(self, name: str) -> CheckpointCorrupt:
        return CheckpointCorrupt(
            f"checkpoint {self.storage_id} lacks {name}, which its manifest lists; restore an older checkpoint"
        )


def find_checkpoint(storage: StorageManager, storage_id: str) -> StoredCheckpoint:
    """Return the complete checkpoint with this id.

    Args:
        storage: the store that holds the checkpoint.
        storage_id: id of the checkpoint.

    Raises:
        CheckpointNotFound: there is no complete checkpoint with this id.
        CheckpointCorrupt: ``metadata.json`` cannot be parsed.
        StorageError: a newer release wrote the checkpoint, or the store cannot be read.
    """
    with scratch_directory("manifest") as scratch:
        path = scratch / METADATA_FILE
        try:
            storage.get(storage_id, METADATA_FILE, path)
        except FileNotFoundError as error:
            raise CheckpointNotFound(f"there is no complete checkpoint {storage_id} in this storage") from error
        text = path.read_bytes()
    return StoredCheckpoint(storage, storage_id, Manifest.from_json(text, storage_id), text)


def read_checkpoint_metadata(storage: StorageManager, storage_id: str) -> dict[str, Any]:
    """Return the user's metadata of a checkpoint.

    Args:
        storage: the store that holds the checkpoint.
        storage_id: id of the checkpoint.

    Raises:
        CheckpointNotFound: there is no complete checkpoint with this id.
        CheckpointCorrupt: ``metadata.json`` cannot be parsed.
    """
    return find_checkpoint(storage, storage_id).metadata


def restore_checkpoint(
    storage: StorageManager,
    storage_id: str,
    directory: Path,
    *,
    selector: Selector | None = None,
    verify: bool = True,
    progress: Progress | None = None,
) -> None:
    """Copy the checkpoint into a directory, which is created if needed, and verify every file.

    Args:
        storage: the store that holds the checkpoint.
        storage_id: id of the checkpoint.
        directory: the target directory.
        selector: function of a stored path that returns whether to copy the file. ``metadata.json`` is always copied.
        verify: whether to compare sizes and checksums with the manifest.
        progress: called from any thread with the number of bytes that were just copied.

    Raises:
        CheckpointNotFound: there is no complete checkpoint with this id.
        CheckpointCorrupt: a file is missing or, with ``verify``, differs from the manifest. The error names it.
        StorageError: the directory belongs to a stored checkpoint, or cannot be written.
    """
    stored = find_checkpoint(storage, storage_id)
    names = [name for name in stored.names() if selector is None or selector(name)]
    stored.fetch(names, directory, verify=verify, progress=progress)


def _inside(directory: Path, name: str) -> Path:
    if not is_inside(name):
        raise CheckpointCorrupt(f"the checkpoint lists a file {name!r}, which is outside the checkpoint")
    return directory / name


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise explain_disk_error(error, directory) or StorageError(
            f"cannot write the checkpoint to {directory}: {error.strerror or error} ({error.filename}); "
            "fix the permissions, or choose another directory"
        ) from error
