"""One checkpoint for the ranks of a host."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

from det_core import storage
from det_core.core._together import Group
from det_core.errors import CheckpointNotFound, RecordNotFound
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import CheckpointState, TrackingStore

T = TypeVar("T")
Find = Callable[[], storage.StoredCheckpoint]


def restore(
    group: Group,
    find: Find,
    selector: storage.Selector | None,
    place: Callable[[storage.StoredCheckpoint, Collection[str]], T],
) -> T:
    """The chief of the group places what any of its ranks selects, and all get the result or an error."""
    found = cache(find)
    names = group.by_chief(lambda: found().names())
    selected = group.together(lambda: names if selector is None else [name for name in names if selector(name)])
    wanted = set().union(*selected)
    return group.by_chief(lambda: place(found(), wanted))


@contextmanager
def restored_path(
    group: Group, find: Find, local: Path | None, selector: storage.Selector | None, *, verify: bool
) -> Iterator[Path]:
    """A temporary directory with copies of the files, or with links to them in the store's own directory."""
    with ExitStack() as scratch:

        def place(found: storage.StoredCheckpoint, names: Collection[str]) -> Path:
            path = Path(scratch.enter_context(tempfile.TemporaryDirectory(prefix="det-checkpoint-")))
            if local:
                found.link(names, path, local, verify=verify)
            else:
                found.fetch(names, path, verify=verify)
            return path

        path = restore(group, find, selector, place)
        try:
            yield path
        finally:
            group.allgather(None)  # it goes away when nobody reads it any more


def find(store: StorageManager, record: TrackingStore, storage_id: str) -> storage.StoredCheckpoint:
    """The checkpoint, which exists if its ``metadata.json`` does, or if the record says that it is complete."""
    try:
        return storage.find(store, storage_id)
    except CheckpointNotFound:
        try:
            row = record.checkpoint(storage_id)
        except RecordNotFound:
            row = None
        if row is None or row.state is not CheckpointState.COMPLETED:
            raise
    warnings.warn(f"checkpoint {storage_id} has lost its metadata.json, so its files are not verified", stacklevel=2)
    text = json.dumps(row.metadata, indent=2).encode()
    return storage.StoredCheckpoint(store, storage_id, storage.Manifest(row.metadata, None), text)
