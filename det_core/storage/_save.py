"""Saving of files as a checkpoint. A checkpoint exists once its ``metadata.json`` does, so that file comes last."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from det_core.errors import StorageError
from det_core.interfaces.storage import Selector, StorageManager
from det_core.local_files.checksum import EMPTY_ENTRY, Entry, checksum_file
from det_core.local_files.parallel import in_parallel
from det_core.storage._delete import delete_stored_files
from det_core.storage._directory_tree import parent_directories
from det_core.storage._manifest import KEY, METADATA_FILE, Manifest, is_manifest, put_manifest
from det_core.storage._open import explain_put_errors

_WRITING = 0o222


def scan_directory(directory: Path, selector: Selector | None = None) -> dict[str, Path]:
    """Return the files and directories under a directory by relative path. Paths of directories end in ``/``.

    Symbolic links count as what they point to. Their targets must exist, and directories among them must be inside
    ``directory``. The ``metadata.json`` of another checkpoint at the top is omitted, because the new one gets its own.

    Args:
        directory: the directory to scan.
        selector: function of a relative path that returns whether to include it. None includes all. The contents of a
            directory that is not included are still considered, except for a link that cannot be followed.

    Raises:
        ValueError: there is a dangling link, a link that leads out of the directory or back to a directory above it, a
            special file, or another ``metadata.json`` at the top. The message names it.
    """
    walk = _walk(os.fspath(directory), "", (os.path.realpath(directory),), selector)
    found = {name: path for name, path in walk if selector is None or selector(name)}
    reserved = found.pop(METADATA_FILE, None)
    if reserved and not is_manifest(reserved):
        raise ValueError(
            f"cannot store {reserved}, because each checkpoint has a file of det with this name; rename it, pass its "
            "content as metadata, or leave it out with a selector"
        )
    return found


def _walk(directory: str, prefix: str, above: tuple[str, ...], selector: Selector | None) -> Iterator[tuple[str, Path]]:
    """Yield everything under a directory, each directory before its contents.

    Args:
        directory: the directory to traverse.
        prefix: text to put before each path.
        above: real paths of the directories that lead here, of which the first contains all others.
        selector: as in `scan_directory`.
    """
    try:
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    for entry in found:
        if entry.is_symlink():
            real = os.path.realpath(entry.path)
            is_directory, problem = Path(real).is_dir(), _link_problem(real, above)
        else:
            real, is_directory = f"{above[-1]}/{entry.name}", entry.is_dir()
            problem = "" if is_directory or entry.is_file() else "is neither a file nor a directory"
        path = f"{prefix}{entry.name}/" if is_directory else prefix + entry.name
        if not problem:
            yield path, Path(entry.path)
            if is_directory:
                yield from _walk(real, path, (*above, real), selector)
        elif path != METADATA_FILE and (selector is None or selector(path)):
            raise ValueError(f"cannot store {entry.path}, which {problem}; remove it or use a selector")


def _link_problem(real: str, above: tuple[str, ...]) -> str:
    """Return why a symbolic link cannot be followed, or "" if it can.

    Args:
        real: real path of its target.
        above: as in `_walk`.
    """
    if Path(real).is_file():
        return ""
    if not Path(real).is_dir():
        return f"is a link to {real}, which is neither a file nor a directory"
    if real in above:
        return f"is a link to {real}, a directory above it"
    return "" if real.startswith(above[0] + os.sep) else f"is a link to {real}, outside of {above[0]}"


def store_files(storage: StorageManager, storage_id: str, files: Mapping[str, Path]) -> dict[str, Entry]:
    """Store local files and empty directories, and return the entries of all paths.

    Stores know no other directories than empty ones.

    Args:
        storage: the store to write to.
        storage_id: id of the checkpoint.
        files: local files by the path to store them under, as returned by `scan_directory`.

    Raises:
        StorageError: the store rejected a file, or a file changed or vanished during the upload.
    """
    inner = _directories_above(files)
    with explain_put_errors(storage):
        stored = storage.put_files(storage_id, {name: path for name, path in files.items() if name not in inner})
    return {name: stored.get(name, EMPTY_ENTRY) for name in files}


def save_checkpoint(
    storage: StorageManager, storage_id: str, files: Mapping[str, Path], metadata: Mapping[str, Any]
) -> dict[str, int]:
    """Store a whole checkpoint and return its resources, which are the sizes in bytes by stored path.

    If anything fails, the files stored so far are deleted and the error is raised.

    Args:
        storage: the store to write to.
        storage_id: id of the new checkpoint.
        files: local files by the path to store them under, as returned by `scan_directory`.
        metadata: the user's metadata.

    Raises:
        StorageError: the store rejected a file, or a file changed or vanished during the upload.
    """
    try:
        return publish_checkpoint(storage, storage_id, store_files(storage, storage_id, files), metadata)
    except BaseException:
        delete_stored_files(storage, storage_id)
        raise


def adopt_files(
    storage: StorageManager, storage_id: str, files: Mapping[str, Path], directory: Path
) -> dict[str, Entry]:
    """Turn local files into stored files without a copy, and return their entries by stored path.

    Files are write-protected and moved to their place in the store's own directory unless they are there already. Links
    and files with several names are copied, because they may be used elsewhere.

    Args:
        storage: the store, whose files are in a local directory.
        storage_id: id of the new checkpoint.
        files: local files by the path to store them under.
        directory: the checkpoint's directory in the store.
    """
    entries: dict[str, Entry] = {}
    names = Counter(files.values())

    def adopt(name: str) -> None:
        target, shared = directory / name, name in links
        entries[name] = _adopt(storage, storage_id, name, files[name], target, is_shared=shared)

    for name in files:
        if name.endswith("/") and (directory / name).is_symlink():  # its contents have paths without it
            (directory / name).unlink()
    links = {name for name, path in files.items() if not name.endswith("/") and (names[path] > 1 or _has_links(path))}
    in_parallel(adopt, links, threads=storage.transfers)  # first, because their targets may be moved
    in_parallel(adopt, files.keys() - links, threads=storage.transfers)
    if files:
        storage.sync(storage_id, list(files))
    return {name: entries[name] for name in files}


def publish_checkpoint(
    storage: StorageManager, storage_id: str, entries: Mapping[str, Entry], metadata: Mapping[str, Any]
) -> dict[str, int]:
    """Publish stored files as a checkpoint, and return its resources as in `save_checkpoint`.

    The checkpoint is visible and durable on return.

    Args:
        storage: the store that holds the files.
        storage_id: id of the new checkpoint.
        entries: entries by stored path, as returned by `store_files` and `adopt_files`.
        metadata: the user's metadata.

    Raises:
        StorageError: the store rejected the manifest, or one of the files is missing in the store.
    """
    stored = storage.list(storage_id)
    missing = entries.keys() - stored.keys() - _directories_above(stored)
    if missing:
        raise StorageError(
            f"the storage lost {min(missing)!r} of checkpoint {storage_id}, which was just stored: it was removed, "
            "or another host stored it on its local disk; choose a checkpoint_storage that all hosts share"
        )
    manifest = Manifest({key: value for key, value in metadata.items() if key != KEY}, entries)
    size = put_manifest(storage, storage_id, manifest)
    return {**{name: entry.size for name, entry in entries.items()}, METADATA_FILE: size}


def _directories_above(names: Iterable[str]) -> set[str]:
    return {parent for name in names for parent in parent_directories(name)}


def _adopt(
    storage: StorageManager, storage_id: str, name: str, source: Path, target: Path, *, is_shared: bool
) -> Entry:
    if name.endswith("/"):
        target.mkdir(parents=True, exist_ok=True)
        return EMPTY_ENTRY
    if is_shared:
        storage.put(storage_id, name, source)
        return checksum_file(target)
    entry = checksum_file(source)
    source.chmod(source.stat().st_mode & ~_WRITING)
    if source != target:
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
    return entry


def without_directory_links(directory: Path, name: str) -> Path:
    """Return a file of a directory as `scan_directory` does, with links to directories resolved on its path.

    Args:
        directory: the directory that was scanned.
        name: path of the file relative to it.
    """
    parent, slash, base = name.rstrip("/").rpartition("/")
    return Path(os.path.realpath(directory / parent), base) if slash else directory / name


def _has_links(path: Path) -> bool:
    """Return whether a file is a link or has several hard links."""
    status = path.lstat()
    return stat.S_ISLNK(status.st_mode) or status.st_nlink > 1
