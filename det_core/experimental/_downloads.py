"""Downloads of recorded checkpoints into directories."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from det_core import storage
from det_core.core.recorded_storage import open_checkpoint_storage
from det_core.errors import CheckpointNotFound, DetError, PluginError, SecretMissing, StorageError
from det_core.interfaces.records import CheckpointRecord, CheckpointState
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import is_server_url
from det_core.tracking.remote import ServedStorage, ServerConnection

_log = logging.getLogger("det.experimental")


def download_checkpoint(
    store: TrackingStore, checkpoint: CheckpointRecord, target: Path, progress: Callable[[int], None] | None = None
) -> None:
    """Copy a checkpoint into a new or empty directory and verify it. The target appears whole or not at all.

    If this machine cannot read the storage, the det server of the tracking store reads the files and sends them.

    ``metadata.json`` in the target contains the present metadata from the tracking store.

    Args:
        store: the tracking store.
        checkpoint: checkpoint to copy.
        target: new or empty directory.
        progress: called from any thread with the number of bytes just copied.

    Raises:
        DetError: the checkpoint is not complete, or the target is in use.
    """
    if checkpoint.state not in (CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED):
        why = f" ({checkpoint.error})" if checkpoint.error else ""
        raise DetError(
            f"checkpoint {checkpoint.uuid} is {checkpoint.state.value}{why}; only COMPLETED checkpoints and the "
            "remaining files of PARTIALLY_DELETED ones can be downloaded"
        )
    with atomic_directory(target) as files:
        _restore(store, checkpoint, files, progress)
        storage.sign_copy(files, checkpoint.uuid, checkpoint.metadata)


def _restore(
    store: TrackingStore, checkpoint: CheckpointRecord, files: Path, progress: Callable[[int], None] | None
) -> None:
    restore = partial(storage.restore_checkpoint, storage_id=checkpoint.uuid, directory=files, progress=progress)
    is_served = is_server_url(store.url)
    try:
        manager = open_checkpoint_storage(store, checkpoint, chosen=True)
        restore(manager.with_few_retries() if is_served else manager)
    except (CheckpointNotFound, PluginError, SecretMissing, StorageError) as error:
        if not is_served:
            raise
        _log.warning("%s reads checkpoint %s, because this machine cannot: %s", store.url, checkpoint.uuid, error)
        with closing(ServerConnection(store.url)) as server:
            restore(ServedStorage(server))


@contextmanager
def atomic_directory(target: Path) -> Iterator[Path]:
    """Yield a path for a new directory, whose contents appear in ``target`` if the block succeeds.

    A target that exists stays the same directory, because it may be a mounted one, or that of a running shell.

    Raises:
        DetError: the target is in use.
    """
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise DetError(f"{target} exists and is not an empty directory; remove it, or name another directory")
    target = Path(os.path.realpath(target))  # a rename would replace a link
    beside = next(path for path in (target, *target.parents) if path.is_dir())
    with tempfile.TemporaryDirectory(prefix=".det-download-", dir=beside) as scratch:
        files = Path(scratch, "files")
        yield files
        if beside != target:
            target.parent.mkdir(parents=True, exist_ok=True)
            files.rename(target)
            return
        for path in sorted(files.iterdir(), key=lambda path: path.name == storage.METADATA_FILE):
            path.rename(target / path.name)
