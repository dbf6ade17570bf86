"""Download of one checkpoint for several ranks of a host."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from det_core import storage
from det_core.core.rank_agreement import RankGroup
from det_core.disk_errors import explain_disk_error
from det_core.errors import CheckpointCorrupt, CheckpointNotFound, RecordNotFound, TrackingError
from det_core.interfaces.records import CheckpointRecord, CheckpointState
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore
from det_core.scratch import scratch_directory

_log = logging.getLogger("det.core")

T = TypeVar("T")


@dataclass(frozen=True)
class CheckpointSource:
    """A checkpoint to restore."""

    manager: StorageManager
    record: TrackingStore
    storage_id: str

    def find(self) -> storage.StoredCheckpoint:
        """Return the checkpoint. It exists if its ``metadata.json`` does, or if its row is COMPLETED.

        Raises:
            CheckpointNotFound: there is no such checkpoint, or none of its files is in the storage.
            CheckpointCorrupt: its ``metadata.json`` is damaged, or is missing together with other files.
        """
        try:
            return storage.find_checkpoint(self.manager, self.storage_id)
        except CheckpointNotFound:
            row = self.row()
            sizes = self.manager.list(self.storage_id)
            if row is None or row.state is not CheckpointState.COMPLETED or not sizes:
                raise
        for name, size in row.resources.items():
            if not name.endswith("/") and name != storage.METADATA_FILE and sizes.get(name) != size:
                raise CheckpointCorrupt(
                    f"checkpoint {self.storage_id} has lost its metadata.json, and {name}, which had {size} bytes, "
                    f"{f'has {sizes[name]}' if name in sizes else 'is missing'}; restore an older checkpoint"
                )
        warnings.warn(
            f"checkpoint {self.storage_id} has lost its metadata.json, so its files are not verified", stacklevel=2
        )
        text = json.dumps(row.metadata, indent=2).encode()
        return storage.StoredCheckpoint(self.manager, self.storage_id, storage.Manifest(row.metadata, None), text)

    def current_metadata(self) -> dict[str, Any]:
        """Return the metadata in the tracking store, which users may edit, or else that of the files.

        Raises:
            CheckpointNotFound, CheckpointCorrupt: as in `find`.
        """
        saved = self.find().metadata
        row = self.row()
        return saved if row is None else dict(row.metadata)

    @contextmanager
    def recording_damage(self) -> Iterator[None]:
        """Mark the checkpoint ERROR in the tracking store if the block finds it damaged.

        Raises:
            DiskError: it was not damage, but an error of the disk on which it was read.
        """
        try:
            yield
        except CheckpointCorrupt as error:
            if disk_error := explain_disk_error(error):
                raise disk_error from error
            try:
                if self.row():
                    self.record.fail_checkpoint(self.storage_id, str(error))
            except TrackingError as failure:
                _log.warning(
                    "checkpoint %s is damaged, and the tracking store could not be updated: %s",
                    self.storage_id,
                    failure,
                )
            raise

    def row(self) -> CheckpointRecord | None:
        """Return the checkpoint's row, or None if the checkpoint belongs to another tracking store."""
        try:
            return self.record.checkpoint(self.storage_id)
        except RecordNotFound:
            return None


def restore_selected_files(
    group: RankGroup,
    source: CheckpointSource,
    selector: storage.Selector | None,
    place: Callable[[storage.StoredCheckpoint, Collection[str]], T],
) -> T:
    """Let the chief of the group place the files that any rank selects, and return its result on all ranks.

    Args:
        group: the ranks that restore together.
        source: the checkpoint.
        selector: takes a path relative to the checkpoint and returns whether this rank needs it. None = all files.
        place: takes the checkpoint and the names of the selected files.

    Raises:
        CheckpointNotFound, CheckpointCorrupt, StorageError: the checkpoint cannot be restored.
        RankFailed: another rank raised.
    """
    found = cache(source.find)
    with source.recording_damage():
        names = group.by_chief(lambda: found().names())
        selected = group.together(lambda: names if selector is None else [name for name in names if selector(name)])
        wanted = set().union(*selected)
        return group.by_chief(lambda: place(found(), wanted))


@contextmanager
def restored_path(
    group: RankGroup, source: CheckpointSource, local: Path | None, selector: storage.Selector | None, *, verify: bool
) -> Iterator[Path]:
    """Yield a temporary directory with copies of the selected files, or with links to them.

    Args:
        group: the ranks that restore together.
        source: the checkpoint.
        local: the checkpoint's directory in a mounted store, to link to. None = copy the files.
        selector: takes a path relative to the checkpoint and returns whether this rank needs it. None = all files.
        verify: whether to compare the files with their checksums.
    """
    with ExitStack() as scratch:

        def place(found: storage.StoredCheckpoint, names: Collection[str]) -> Path:
            path = scratch.enter_context(scratch_directory("checkpoint"))
            if local:
                found.link(names, path, local, verify=verify)
            else:
                found.fetch(names, path, verify=verify)
            return path

        path = restore_selected_files(group, source, selector, place)
        try:
            yield path
        finally:
            group.allgather(None)  # the directory is removed once no rank reads it any more
