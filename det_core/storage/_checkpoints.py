"""Whole checkpoints over the four verbs of a store.

A checkpoint exists if and only if its ``metadata.json`` does: written last, deleted first.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from det_core.errors import CheckpointCorrupt, CheckpointNotFound, StorageError
from det_core.interfaces.storage import StorageManager
from det_core.storage._manifest import KEY, Entry, Manifest, checksum

METADATA_FILE = "metadata.json"

Selector = Callable[[str], bool]
_EMPTY = Entry(0, "00000000")


def scan(directory: Path, selector: Selector | None = None) -> dict[str, Path]:
    """Map the relative paths under a directory to their files; empty directories end in ``/``.

    Symbolic links to files count as files; links to directories and dangling links raise ValueError.
    A ``metadata.json`` at the top is left out: the checkpoint gets its own.
    """
    found: dict[str, Path] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        is_directory = path.is_dir() and not path.is_symlink()
        if is_directory:
            name += "/"
        if name == METADATA_FILE or (is_directory and any(path.iterdir())) or (selector and not selector(name)):
            continue
        if not (is_directory or path.is_file()):
            raise ValueError(f"cannot store {path}: expected files and directories; remove it or use a selector")
        found[name] = path
    return found


def save(
    store: StorageManager, storage_id: str, files: Mapping[str, Path], metadata: Mapping[str, Any]
) -> dict[str, int]:
    """Store the files, then the manifest. Returns the resources: stored path -> size in bytes.

    If anything fails, what was stored is removed again and the error goes on.
    """
    manifest = _manifest(files, metadata)
    try:
        for name, path in files.items():
            store.put(storage_id, name, path)
        return _publish(store, storage_id, manifest)
    except BaseException:
        store.delete(storage_id, list(files))
        raise


def finish(store: StorageManager, storage_id: str, directory: Path, metadata: Mapping[str, Any]) -> dict[str, int]:
    """Publish a checkpoint whose files were written in place, in the store's own directory."""
    files = scan(directory)
    for path in files.values():
        sync(path)
    return _publish(store, storage_id, _manifest(files, metadata))


def metadata(store: StorageManager, storage_id: str) -> dict[str, Any]:
    """The user's metadata.

    Raises:
        CheckpointNotFound: there is no complete checkpoint under this id.
    """
    return dict(_read(store, storage_id).metadata)


def restore(
    store: StorageManager, storage_id: str, directory: Path, *, selector: Selector | None = None, verify: bool = True
) -> None:
    """Copy the checkpoint into a directory, which is created, and verify every file.

    Args:
        selector: takes paths as in the manifest; those it rejects are not fetched.
        verify: compare sizes and checksums with the manifest.

    Raises:
        CheckpointNotFound: there is no complete checkpoint under this id.
        CheckpointCorrupt: a file is missing or differs from the manifest; names it.
    """
    manifest = _read(store, storage_id)
    names = list(store.list(storage_id)) if manifest.files is None else list(manifest.files)
    directory.mkdir(parents=True, exist_ok=True)
    for name in (*names, METADATA_FILE):
        if selector is not None and not selector(name):
            continue
        target = _inside(directory, name)
        if name.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            store.get(storage_id, name, target)
        except FileNotFoundError as error:
            raise CheckpointCorrupt(f"checkpoint {storage_id} lacks {name}, which its manifest lists") from error
        if verify and manifest.files and name in manifest.files:
            _check(storage_id, name, target, manifest.files[name])


def verify_in_place(store: StorageManager, storage_id: str, directory: Path) -> None:
    """Verify a checkpoint where it lies. Raises as `restore` does."""
    for name, entry in (_read(store, storage_id).files or {}).items():
        if not name.endswith("/"):
            _check(storage_id, name, directory / name, entry)


def delete(store: StorageManager, storage_id: str) -> None:
    """Remove the checkpoint, or the remains of one that was never finished."""
    names = store.list(storage_id)
    store.delete(storage_id, [name for name in (METADATA_FILE, *names) if name in names])


def check(store: StorageManager) -> None:
    """Write, read and delete a small file, so that a wrong store fails before training starts."""
    storage_id, content = f"check-{uuid.uuid4()}", b"det checks this storage"
    with tempfile.TemporaryDirectory() as scratch:
        path, back = Path(scratch, "out"), Path(scratch, "back")
        path.write_bytes(content)
        store.put(storage_id, "check.txt", path)
        try:
            store.get(storage_id, "check.txt", back)
            if back.read_bytes() != content:
                raise StorageError(f"checkpoint storage returned {back.read_bytes()!r} for {content!r}")
        finally:
            store.delete(storage_id, ["check.txt"])


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, would survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _manifest(files: Mapping[str, Path], metadata: Mapping[str, Any]) -> Manifest:
    entries = {name: _EMPTY if name.endswith("/") else checksum(path) for name, path in files.items()}
    return Manifest({key: value for key, value in metadata.items() if key != KEY}, entries)


def _publish(store: StorageManager, storage_id: str, manifest: Manifest) -> dict[str, int]:
    text = manifest.to_json().encode()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, METADATA_FILE)
        path.write_bytes(text)
        store.put(storage_id, METADATA_FILE, path)
    sizes = {name: entry.size for name, entry in (manifest.files or {}).items()}
    return {**sizes, METADATA_FILE: len(text)}


def _read(store: StorageManager, storage_id: str) -> Manifest:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, METADATA_FILE)
        try:
            store.get(storage_id, METADATA_FILE, path)
        except FileNotFoundError as error:
            raise CheckpointNotFound(f"there is no complete checkpoint {storage_id} in this storage") from error
        return Manifest.from_json(path.read_text(), storage_id)


def _inside(directory: Path, name: str) -> Path:
    target = directory / name
    if not target.resolve().is_relative_to(directory.resolve()):
        raise CheckpointCorrupt(f"the manifest names {name!r}, which is outside the checkpoint")
    return target


def _check(storage_id: str, name: str, path: Path, expected: Entry) -> None:
    found = checksum(path) if path.is_file() else None
    if found != expected:
        raise CheckpointCorrupt(
            f"checkpoint {storage_id}: {name} should have {expected.size} bytes and crc32c {expected.crc32c}, "
            f"found {f'{found.size} bytes and {found.crc32c}' if found else 'no file'}; restore an older checkpoint"
        )
