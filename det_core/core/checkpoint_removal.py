"""Removal of recorded checkpoints from checkpoint storage and from the tracking store.

The process that has the storage removes the files, which may be a det server. What the tracking store says follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import Any

from det_core import storage
from det_core.core._storage_block import open_storage_block
from det_core.core.recorded_storage import (
    describe_storage,
    experiment_config,
    find_other_storage,
    open_checkpoint_storage,
)
from det_core.errors import CheckpointCorrupt, PluginError, SecretMissing, StorageError, TrackingError
from det_core.ignore_patterns import pattern_matcher
from det_core.interfaces.records import CheckpointRecord, CheckpointState, ExperimentRecord
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import is_server_url

_UNREACHABLE = (PluginError, SecretMissing, StorageError)
"""Errors of a machine that cannot use a storage."""
_WITH_FILES = (CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED)
"""States of checkpoints that have files somewhere."""
_LONGEST_SECONDS = 3600.0
"""Maximum time to wait for a server that deletes files."""
_MOST_NAMES = 5
"""Maximum number of remaining files that an error names."""


def remove_checkpoint(
    store: TrackingStore,
    checkpoint: CheckpointRecord,
    globs: Sequence[str] = (),
    *,
    lease: str = "",
    chosen: bool = False,
    is_shared: bool = False,
    on_deleted: Callable[[CheckpointRecord], None],
) -> dict[str, int]:
    """Remove all files of a checkpoint, or only those that match, and update its row in the tracking store.

    The row changes before any file is removed, so a checkpoint in state COMPLETED always has all its files. After an
    error, the call can be repeated. If the store is that of a det server, and this machine does not have the files, the
    server removes them.

    Args:
        store: the tracking store.
        checkpoint: the checkpoint.
        globs: patterns as in `det_core.storage.delete_stored_files`. Empty = all files.
        lease: holder of the lease of its experiment, if that is the caller. A server then refuses only what other
            experiments need.
        chosen: whether a person named this checkpoint, as in `open_checkpoint_storage`.
        is_shared: whether other machines record in the store, so that files may be in their directories. A checkpoint
            that has no files here is then an error.
        on_deleted: function called if no files remain.

    Returns:
        Sizes in bytes of the remaining files, by path.

    Raises:
        RecordInUse: the checkpoint is a version of a registered model.
        StorageError: the storage failed, or no machine that was asked has the files.
    """
    is_served = is_server_url(store.url)
    is_elsewhere = chosen and find_other_storage(experiment_config(store, checkpoint), checkpoint)
    can_ask = is_served and not is_elsewhere  # a server opens no storage that the config does not name
    try:
        manager = open_checkpoint_storage(store, checkpoint, chosen=chosen)
        if can_ask or ((is_shared or is_served) and checkpoint.state in _WITH_FILES):
            _require_files(manager.with_few_retries(), checkpoint)
    except _UNREACHABLE as reason:
        if not can_ask:
            raise
        path = f"/api/checkpoints/{checkpoint.uuid}/delete"
        left = dict(_ask_server(store, path, {"globs": list(globs), "lease": lease}, reason))
    else:
        left = _remove_files(store, manager, checkpoint, globs)
    if not left:
        on_deleted(checkpoint)
    return left


def remove_tensorboard_files(store: TrackingStore, experiment: ExperimentRecord) -> None:
    """Remove the TensorBoard files of an experiment, also those that only a det server has.

    Raises:
        StorageError: the storage failed.
    """
    block = experiment.config.get("checkpoint_storage")
    if not block:
        return
    is_served = is_server_url(store.url)
    reason: Exception | None = None
    try:
        manager = open_storage_block(block)
        manager = manager.with_few_retries() if is_served else manager
        storage.delete_stored_files(manager, store.cluster_id, [f"/tensorboard/experiment/{experiment.id}/"])
        is_done = not is_served or storage.is_bucket(manager)
    except _UNREACHABLE as error:
        if not is_served:
            raise
        reason, is_done = error, False
    if not is_done:
        _ask_server(store, f"/api/experiments/{experiment.id}/tensorboard/delete", {}, reason)


def _require_files(manager: StorageManager, checkpoint: CheckpointRecord) -> None:
    """Check that this machine has the files of a checkpoint, unless they are in a bucket.

    Raises:
        StorageError: it does not.
    """
    if not manager.list(checkpoint.uuid) and not storage.is_bucket(manager):
        raise StorageError(f"checkpoint {checkpoint.uuid} has no files here in {describe_storage(checkpoint.storage)}")


def _remove_files(
    store: TrackingStore, manager: StorageManager, checkpoint: CheckpointRecord, globs: Sequence[str]
) -> dict[str, int]:
    partly = globs and checkpoint.state is not CheckpointState.DELETED
    pattern_matcher(globs)  # raises before anything is changed
    store.delete_checkpoint(checkpoint.uuid, remaining=checkpoint.resources if partly else None)
    try:
        left = storage.delete_stored_files(manager, checkpoint.uuid, globs if partly else storage.ALL_FILES)
    except CheckpointCorrupt:
        raise
    except StorageError as error:
        raise StorageError(f"{error}; {_describe_rest(manager, checkpoint.uuid)}, so repeat the deletion") from error
    store.delete_checkpoint(checkpoint.uuid, remaining=left)
    return left


def _describe_rest(manager: StorageManager, uuid: str) -> str:
    with suppress(StorageError):
        names = sorted(manager.with_few_retries().list(uuid))
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"checkpoint {uuid} still has {', '.join(islice(names, _MOST_NAMES)) or 'no files'}{more}"
    return f"checkpoint {uuid} may still have files"


def _ask_server(
    store: TrackingStore, path: str, document: Mapping[str, Any], reason: Exception | None
) -> Mapping[str, Any]:
    """Let a server delete files, wait until it has, and return what is left.

    Args:
        store: the tracking store of the server.
        path: path of the endpoint.
        document: the request.
        reason: reason why this machine cannot delete them.

    Raises:
        StorageError: the server cannot, either, or takes too long.
    """
    from det_core.tracking.remote import ServerConnection  # scripts without a server do not need its modules

    deadline = time.monotonic() + _LONGEST_SECONDS
    with closing(ServerConnection(store.url)) as server:
        while time.monotonic() < deadline:
            try:
                answer = server.post(path, document)
            except TrackingError as error:
                raise StorageError(f"this machine: {reason}; {error}" if reason else str(error)) from error
            if answer.get("done"):
                return dict(answer["left"])
    raise StorageError(
        f"{store.url} still deletes files after {_LONGEST_SECONDS:.0f} s; to look again, repeat the command"
    )
