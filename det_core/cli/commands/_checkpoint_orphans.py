"""Search for orphans and their removal.

An orphan is what remains of a checkpoint that no run will complete. The tracking store and the storage are searched.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from det_core import storage
from det_core.cli.render.formats import mask_references
from det_core.errors import DetError
from det_core.interfaces.records import CheckpointRecord, CheckpointState
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore


@dataclass(frozen=True)
class Orphan:
    """Remains of a checkpoint that can be removed."""

    uuid: str
    reason: str
    files: Mapping[str, int]
    """Sizes in bytes, by path."""
    manager: StorageManager
    active: bool
    """Whether the tracking store has it as ACTIVE. It becomes DELETED before its files are removed."""


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

    before = datetime.now(timezone.utc) - older_than
    orphans = Orphans()
    for row in store.checkpoints(states=[CheckpointState.ACTIVE]):
        reason = _abandoned(store, row, before)
        if reason:
            with _noted(orphans, f"checkpoint {row.uuid}"):
                manager = open_storage_block(row.storage)
                orphans.found.append(Orphan(row.uuid, reason, manager.list(row.uuid), manager, active=True))
    for block in _blocks(store):
        with _noted(orphans, f"storage {mask_references(json.dumps(block))}"):
            manager = open_storage_block(block)
            orphans.found += _unrecorded(store, manager, before)
    return orphans


def remove_orphan(store: TrackingStore, orphan: Orphan) -> bool:
    """Remove an orphan unless its run has completed it in the meantime, and return whether it was removed."""
    if orphan.active and not store.delete_checkpoint(orphan.uuid, only=CheckpointState.ACTIVE):
        return False
    storage.delete_stored_files(orphan.manager, orphan.uuid)
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
        if state is CheckpointState.DELETED:
            yield Orphan(
                storage_id, "deleted, but its files still exist", manager.list(storage_id), manager, active=False
            )
        elif state is None and written < before and _is_ours(storage_id):
            files = manager.list(storage_id)
            if not _belongs_to_others(files):
                yield Orphan(storage_id, "incomplete and not recorded", files, manager, active=False)


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
    """Return the config blocks of all storages that checkpoints or experiments use, without duplicates."""
    used = [row.storage for row in store.checkpoints(states=list(CheckpointState))]
    configured = [experiment.config.get("checkpoint_storage") for experiment in store.experiments()]
    blocks: dict[str, dict[str, Any]] = {}
    for block in (*used, *configured):
        where = {key: value for key, value in (block or {}).items() if not key.startswith("save_")}
        if where:
            blocks[json.dumps(where, sort_keys=True)] = where
    return list(blocks.values())
