"""Rows of checkpoints in the tracking store.

A row is ACTIVE before the first byte is written, and COMPLETED after the last.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from det_core import events, storage
from det_core.core.event_stream import EventStream
from det_core.core.rank_agreement import RankGroup
from det_core.errors import DetError
from det_core.interfaces.records import CheckpointState, Run
from det_core.interfaces.storage import StorageManager
from det_core.interfaces.tracking import TrackingStore
from det_core.owner_process import OwnerProcess

_log = logging.getLogger("det.core")

Entries: TypeAlias = "Mapping[str, storage.Entry]"


@dataclass(frozen=True)
class CheckpointRecorder:
    """Recorder of the checkpoints of one run, from the first row to completion or removal."""

    store: TrackingStore
    storage: StorageManager
    run: Run
    storage_record: Mapping[str, Any]
    flush: Callable[[], None]
    """Function that commits all metrics reported so far."""
    on_saved: Callable[[], None]
    """Function called after each saved checkpoint."""
    stream: EventStream
    """Receivers of events."""

    def begin(self) -> str:
        """Create the row of a new checkpoint and return its storage id."""
        storage_id = str(uuid.uuid4())
        self.store.begin_checkpoint(
            storage_id, trial_id=self.run.trial_id, run_id=self.run.run_id, storage=self.storage_record
        )
        return storage_id

    @contextmanager
    def saving(self, group: RankGroup, storage_id: str) -> Iterator[None]:
        """Remove the files and the row of a checkpoint if the block raises.

        Only the chief removes them, because another rank that lost its peers cannot know whether the chief has
        completed the checkpoint. A forked child that leaves the block removes nothing.
        """
        owner = OwnerProcess()
        try:
            yield
        except BaseException:
            if group.is_chief and owner.is_here:
                self._abandon(storage_id)
            raise

    def complete(self, storage_id: str, stored: Sequence[Entries], metadata: Mapping[str, Any]) -> None:
        """Publish the files that the ranks stored, after committing all metrics reported before.

        Args:
            storage_id: the checkpoint's storage id.
            stored: the stored files of each rank.
            metadata: the checkpoint's metadata.
        """
        entries = {name: entry for part in stored for name, entry in part.items()}
        self.flush()
        resources = storage.publish_checkpoint(self.storage, storage_id, entries, metadata)
        steps = metadata.get("steps_completed")
        self.store.complete_checkpoint(
            storage_id, run_id=self.run.run_id, steps_completed=steps, resources=resources, metadata=metadata
        )
        self.stream.emit(
            events.CheckpointSaved,
            storage_id=storage_id,
            steps_completed=steps,
            resources=resources,
            metadata=metadata,
            location=self.storage.location(storage_id),
        )
        self.on_saved()

    def _abandon(self, storage_id: str) -> None:
        try:
            if self.store.checkpoint(storage_id).state is not CheckpointState.COMPLETED:
                storage.delete_stored_files(self.storage, storage_id)
                self.store.delete_checkpoint(storage_id)
        except DetError as error:
            _log.warning(
                "checkpoint %s failed and could not be cleaned up (%s); to remove its files later: "
                "det checkpoint gc --orphans",
                storage_id,
                error,
            )
