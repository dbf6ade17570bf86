"""Removing checkpoints, and trying a store out."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from det_core.errors import StorageError
from det_core.interfaces.storage import StorageManager
from det_core.scratch import scratch_directory
from det_core.storage._manifest import METADATA_FILE, put_manifest
from det_core.storage._restore import find
from det_core.storage.objects import ObjectStorage

if TYPE_CHECKING:
    from det_core.storage._save import Selector

ALL = ("**/*",)


def delete(store: StorageManager, storage_id: str, globs: Collection[str] = ALL) -> dict[str, int]:
    """Remove a checkpoint, or some of its files, or the remains of one that was never finished.

    What is visible is whole at any time: ``metadata.json`` goes before everything else, or, if files are left, is
    replaced before the others go by one that lists only them. Interrupted, it can be called again.

    Args:
        globs: which files, as in a line of ``.gitignore`` each: ``*.pth`` in any directory, ``/state.pth`` at the
            top, ``optimizer/`` with all below, ``!best.pth`` not this one after all. ``metadata.json`` goes only
            with the last file.

    Returns:
        What is left: stored path -> size in bytes.

    Raises:
        CheckpointCorrupt: files shall be left, and ``metadata.json`` cannot be read.
    """
    matches = selector(globs)
    if isinstance(store, ObjectStorage):
        store.abort_uploads(storage_id, matches)
    names = store.list(storage_id)
    doomed = {name: None for name in names if name != METADATA_FILE and matches(name)}
    left = {name: size for name, size in names.items() if name not in doomed}
    if left.keys() <= {METADATA_FILE} and matches(METADATA_FILE):
        store.delete(storage_id, [*left, *doomed])
        return {}
    if not doomed:
        return left
    if METADATA_FILE in left:
        manifest = find(store, storage_id).manifest
        if manifest.files is not None:
            files = {name: entry for name, entry in manifest.files.items() if not matches(name)}
            left[METADATA_FILE] = put_manifest(store, storage_id, replace(manifest, files=files))
    store.delete(storage_id, list(doomed))
    return left


def selector(globs: Collection[str]) -> Selector:
    """Which paths match, as `delete` takes them."""
    from pathspec import GitIgnoreSpec  # 12 ms that only who deletes should wait

    return GitIgnoreSpec.from_lines(globs).match_file


def check(store: StorageManager) -> None:
    """Write, read and delete a small file, so that a wrong store fails before training starts, and within seconds."""
    if isinstance(store, ObjectStorage):
        store = store.hasty()
    storage_id, content = f"check-{uuid.uuid4()}", b"det checks this storage"
    with scratch_directory("check") as scratch:
        path, back = scratch / "out", scratch / "back"
        path.write_bytes(content)
        store.put(storage_id, "check.txt", path)
        try:
            store.get(storage_id, "check.txt", back)
            if back.read_bytes() != content:
                raise StorageError(f"checkpoint storage returned {back.read_bytes()!r} for {content!r}")
        finally:
            store.delete(storage_id, ["check.txt"])
