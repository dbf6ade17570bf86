"""Search for orphans and their removal.

An orphan is what remains of a checkpoint that no run will complete. The tracking store and the storage are searched.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from det_core import storage
from det_core.core._storage_block import without_numbers
from det_core.core.checkpoint_removal import remove_checkpoint
from det_core.core.recorded_storage import (
    describe_storage,
    experiment_config,
    find_other_storage,
    open_checkpoint_storage,
)
from det_core.errors import DetError, StorageError
from det_core.home import default_storage
from det_core.interfaces.records import CheckpointRecord, CheckpointState
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import is_server_url


@dataclass(frozen=True)
class Orphan:
    """Remains of a checkpoint that can be removed."""

    uuid: str
    reason: str
    files: Mapping[str, int]
    """Sizes in bytes, by path."""
    remove: Callable[[], bool]
    """Function that removes it unless its run has completed it in the meantime, and returns whether it was removed."""


@dataclass
class Orphans:
    """Result of `find_orphans`."""

    found: list[Orphan] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Descriptions of the storage and checkpoints that could not be searched."""


def find_orphans(store: TrackingStore, older_than: timedelta) -> Orphans:
    """Find all files that no run is writing and that cannot be restored.

    Args:
        store: the tracking store.
        older_than: minimum time since the last change of files that look like a checkpoint that is being written.
            Files that are known to be abandoned are found regardless of their age.
    """
    from det_core.core import open_storage_block

    is_served = is_server_url(store.url)
    before = datetime.now(timezone.utc) - older_than
    orphans = Orphans()
    for row in store.checkpoints(states=[CheckpointState.ACTIVE]):
        reason = _abandoned(store, row, before)
        if reason:
            with _noted(orphans, f"checkpoint {row.uuid}"):
                if other := find_other_storage(experiment_config(store, row), row):
                    raise StorageError(other)
                files = {} if is_served else open_checkpoint_storage(store, row).list(row.uuid)
                orphans.found.append(Orphan(row.uuid, reason, files, partial(_remove_active, store, row)))
    for block in _blocks(store):
        with _noted(orphans, f"storage {describe_storage(block)}"):
            manager = open_storage_block(block)
            orphans.found += _unrecorded(store, manager, before)
            if is_served and not storage.is_bucket(manager):
                raise StorageError("on another machine, only a command there finds files without a record")
    return orphans


def _remove_active(store: TrackingStore, row: CheckpointRecord) -> bool:
    if not store.delete_checkpoint(row.uuid, only=CheckpointState.ACTIVE):
        return False
    remove_checkpoint(store, row, on_deleted=lambda _: None)
    return True


def _remove_unrecorded(manager: StorageManager, storage_id: str) -> bool:
    storage.delete_stored_files(manager, storage_id)
    return True


def _abandoned(store: TrackingStore, row: CheckpointRecord, before: datetime) -> str | None:
    """Return the reason why no run will complete this ACTIVE checkpoint, or None if a run may complete it."""
    trial = store.trial(row.trial_id)
    if trial.run_id != row.run_id:
        return f"run {row.run_id} of trial {trial.id} was replaced"
    if trial.state.final:
        return f"trial {trial.id} is {trial.state.value}"
    if row.time < before and store.lease_holder(trial.experiment_id) is None:
        return f"started {row.time:%Y-%m-%d %H:%M} UTC, and experiment {trial.experiment_id} has no runner"
    return None


@contextmanager
def _noted(orphans: Orphans, what: str) -> Iterator[None]:
    try:
        yield
    except NotImplementedError:
        orphans.problems.append(f"{what}: the plugin cannot list stored files")
    except DetError as error:
        orphans.problems.append(f"{what}: {error}")


def _unrecorded(store: TrackingStore, manager: StorageManager, before: datetime) -> Iterator[Orphan]:
    held = manager.stored()
    rows = store.checkpoints(states=list(CheckpointState))  # read after the files, whose rows are written first
    states = {row.uuid: row.state for row in rows}
    for storage_id, written in held.items():
        state = states.get(storage_id)
        remove = partial(_remove_unrecorded, manager, storage_id)
        if state is CheckpointState.DELETED:
            yield Orphan(storage_id, "deleted, but its files still exist", manager.list(storage_id), remove)
        elif state is None and written < before and _is_ours(storage_id):
            files = manager.list(storage_id)
            if not _belongs_to_others(files):
                yield Orphan(storage_id, "incomplete and not recorded", files, remove)


def _is_ours(storage_id: str) -> bool:
    try:
        return str(uuid.UUID(storage_id)) == storage_id
    except ValueError:
        return False


def _belongs_to_others(files: Mapping[str, int]) -> bool:
    """Return whether the files belong to another installation.

    These are complete checkpoints of another tracking store, and the TensorBoard files that Determined stores under the
    id of its cluster.
    """
    return storage.METADATA_FILE in files or any(name.startswith("tensorboard/") for name in files)


def _blocks(store: TrackingStore) -> list[dict[str, Any]]:
    """Return the config blocks of all storages that experiments use, without duplicates."""
    configured = (
        experiment.config.get("checkpoint_storage") or default_storage() for experiment in store.experiments(brief=True)
    )
    return list({json.dumps(block, sort_keys=True): block for block in map(without_numbers, configured)}.values())
