"""Deletion of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from det_core.interfaces.storage import StorageManager
from det_core.storage._manifest import METADATA_FILE, put_manifest
from det_core.storage._restore import find_checkpoint

ALL_FILES = ("**/*",)
"""Patterns that match every file of a checkpoint."""


def delete_stored_files(storage: StorageManager, storage_id: str, globs: Collection[str] = ALL_FILES) -> dict[str, int]:
    """Delete a checkpoint, some of its files, or the remains of an unfinished checkpoint.

    A visible checkpoint is complete at any time. ``metadata.json`` is deleted first, or, if files remain, is first
    replaced by one that lists only those. After an interruption the call can be repeated.

    Args:
        storage: the store that holds the checkpoint.
        storage_id: id of the checkpoint.
        globs: patterns of the files to delete, as in ``.gitignore``. ``*.pth`` matches in any directory,
            ``/state.pth`` matches at the top, ``optimizer/`` matches a directory with all its contents, and
            ``!best.pth`` excludes a file. ``metadata.json`` is deleted only together with the last file.

    Returns:
        Size in bytes of each remaining file and directory, by stored path.

    Raises:
        CheckpointCorrupt: files will remain, but ``metadata.json`` cannot be read.
    """
    matches = _matcher(globs)
    storage.abort_uploads(storage_id, matches)
    names = storage.list(storage_id)
    doomed = {name: None for name in names if name != METADATA_FILE and matches(name)}
    left = {name: size for name, size in names.items() if name not in doomed}
    if left.keys() <= {METADATA_FILE} and matches(METADATA_FILE):
        storage.delete(storage_id, [*left, *doomed])
        return {}
    manifest = find_checkpoint(storage, storage_id).manifest if METADATA_FILE in left else None
    if manifest and manifest.files is not None:
        files = {name: entry for name, entry in manifest.files.items() if not matches(name)}
        left |= {name: entry.size for name, entry in files.items() if name.endswith("/")}
        if doomed:
            left[METADATA_FILE] = put_manifest(storage, storage_id, replace(manifest, files=files))
    if doomed:
        storage.delete(storage_id, list(doomed))
    return left


def _matcher(globs: Collection[str]) -> Callable[[str], bool]:
    if globs == ALL_FILES:
        return lambda _: True
    from det_core.ignore_patterns import pattern_matcher  # most processes delete whole checkpoints only

    return pattern_matcher(globs)
